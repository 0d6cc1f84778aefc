"""The classic Spark session of a worker, with the driver JVM on the same machine."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tidemill.spark.fan_out import FanOut, Task, through_rdd
from tidemill.spark.target import SparkTarget

T = TypeVar("T")

DEFAULTS: Final = {
    "spark.python.daemon.module": "tidemill.spark.daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
# Executors on other machines could not reach a driver that listens on loopback.
LOCAL_DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


class ClassicCluster:
    """A cluster whose driver is a local JVM, with executors in that JVM or elsewhere."""

    def __init__(
        self, session: SparkSession, slots: int | None = None, fan_out: FanOut = through_rdd
    ) -> None:
        self._session = session
        self._slots = slots or session.sparkContext.defaultParallelism
        self._fan_out = fan_out

    @property
    def slots(self) -> int:
        return self._slots

    def run(self, group: str, task: Task, tasks: int) -> list[bytes]:
        self._session.sparkContext.setJobGroup(group, f"tidemill job {group}", interruptOnCancel=True)
        return self._fan_out(self._session, task, tasks)

    def query(self, group: str, work: Callable[[SparkSession], T]) -> T:
        self._session.sparkContext.setJobGroup(group, f"tidemill job {group}", interruptOnCancel=True)
        return work(self._session)

    def cancel(self, group: str) -> None:
        self._session.sparkContext.cancelJobGroup(group)

    def is_alive(self) -> bool:
        try:
            java = self._session.sparkContext._jsc
            return java is not None and not java.sc().isStopped()
        except (Py4JError, OSError):
            return False

    def warm_up(self) -> None:
        warm_up(self._session, self._slots)

    def stop(self) -> None:
        self._session.stop()


def open_session(target: SparkTarget) -> SparkSession:
    """Starts Spark; its Python workers use this interpreter, so that they can import Tidemill."""
    paths = {
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.local.dir": str(target.scratch / "spark"),
        "spark.sql.warehouse.dir": str(target.scratch / "spark-warehouse"),
    }
    builder = SparkSession.builder.appName("tidemill").master(target.master)
    defaults = {**DEFAULTS, **(LOCAL_DEFAULTS if target.is_local else {}), **paths}
    for key, value in {**defaults, **target.config}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def warm_up(session: SparkSession, tasks: int | None = None) -> None:
    """Starts the Python workers and imports what tasks need, so that the first job does not wait."""
    through_rdd(session, import_kernels, tasks or session.sparkContext.defaultParallelism)


def import_kernels(_: int) -> bytes:
    for name in ("tidemill.spark.view_kernels", "tidemill.spark.sql_tasks"):
        importlib.import_module(name)
    return b""
