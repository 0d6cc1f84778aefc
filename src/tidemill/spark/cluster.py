"""Spark as the executor and the worker see it: a cluster, classic or behind Spark Connect."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tidemill.errors import InvalidInput
from tidemill.spark.target import SparkTarget

T = TypeVar("T")
Task: TypeAlias = Callable[[int], bytes]
"""Processes the share with a given number in a Python worker and returns bytes."""

FanOut: TypeAlias = Callable[[SparkSession, Task, int], list[bytes]]

DEFAULTS: Final = {
    "spark.python.daemon.module": "tidemill.spark.daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
# Not configurable: the text of a view's statement must mean to Spark what the planner has checked. Otherwise
# '${env:NAME}' in it would become a secret of the driver, and json.`/path` in FROM a file.
PINNED: Final = {
    "spark.sql.variable.substitute": "false",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
}
# Executors on other machines could not reach a driver that listens on loopback.
LOCAL_DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


class SparkCluster(Protocol):
    @property
    def slots(self) -> int:
        """Number of tasks that run concurrently."""

    def run(self, group: str, task: Task, tasks: int) -> list[bytes]:
        """Runs tasks 0 to `tasks` - 1 in the job group and returns their results in order; blocks.

        Raises PySparkException or Py4JJavaError if Spark fails or the group is cancelled.
        """

    def query(self, group: str, work: Callable[[SparkSession], T]) -> T:
        """Calls `work` with the session, in the job group; blocks, and raises like run()."""

    def cancel(self, group: str) -> None:
        """Cancels the group. Spark ignores this before the work starts: repeat until run() returns."""

    def is_alive(self) -> bool:
        """Whether the session can still run anything."""

    def warm_up(self) -> None:
        """Starts the Python workers and imports what tasks need, so that the first job does not wait."""

    def stop(self) -> None: ...


def open_cluster(target: SparkTarget) -> SparkCluster:
    """Starts Spark, or connects to it."""
    if not target.is_connect:
        return ClassicCluster(open_session(target), target.known_slots)
    if target.known_slots is None:
        raise InvalidInput("slots", f"is required: {target.master} does not report how many tasks it runs")
    cluster: SparkCluster = _connect_module().ConnectCluster(target.master, target.known_slots, target.config)
    return cluster


def _connect_module() -> Any:
    """Imported on demand: the client packages of Spark Connect are optional. Raises InvalidInput."""
    try:
        return importlib.import_module("tidemill.spark.connect")
    except ImportError as error:
        raise InvalidInput("master", f"sc:// needs pip install 'tidemill[connect]': {error}") from error


def through_rdd(session: SparkSession, task: Task, tasks: int) -> list[bytes]:
    """The fast way: no query planning, and about 3 ms per task. Needs a classic session."""
    return list(session.sparkContext.parallelize(range(tasks), tasks).map(task).collect())


def through_arrow(session: SparkSession, task: Task, tasks: int) -> list[bytes]:
    """Also works on Spark Connect; about 0.15 s slower overall, and 40 ms per task."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            answers = [task(number) for number in batch.column(0).to_pylist()]
            yield pa.record_batch([pa.array(answers, pa.binary())], names=["answer"])

    rows = session.range(0, tasks, 1, tasks).mapInArrow(run, "answer binary").collect()
    return [bytes(row.answer) for row in rows]


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
    for key, value in {**defaults, **target.config, **PINNED}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def warm_up(session: SparkSession, tasks: int | None = None) -> None:
    """Starts the Python workers and imports what tasks need, so that the first job does not wait."""
    through_rdd(session, import_kernels, tasks or session.sparkContext.defaultParallelism)


def import_kernels(_: int) -> bytes:
    for name in ("tidemill.spark.views.rows", "tidemill.spark.views.sql"):
        importlib.import_module(name)
    return b""
