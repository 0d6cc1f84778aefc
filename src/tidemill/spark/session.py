"""The Spark session a worker keeps warm."""

from __future__ import annotations

import importlib
import sys

from pyspark.sql import SparkSession

from tidemill.spark.fan_out import through_rdd
from tidemill.spark.target import SparkTarget


def open_session(target: SparkTarget) -> SparkSession:
    """Starts Spark; its Python workers use this interpreter, or they could import nothing of ours."""
    defaults = {
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.python.daemon.module": "tidemill.spark.daemon",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.local.dir": str(target.scratch / "spark"),
        "spark.sql.warehouse.dir": str(target.scratch / "spark-warehouse"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.appName("tidemill").master(target.master)
    for key, value in {**defaults, **target.config}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def warm_up(session: SparkSession) -> None:
    """Starts the Python workers and has them import what tasks need, so that the first job need not wait."""
    through_rdd(session, _import_kernels, session.sparkContext.defaultParallelism)


def _import_kernels(_: int) -> bytes:
    importlib.import_module("tidemill.spark.view_kernels")
    return b""
