"""What the executor and the worker need from Spark, whether classic or Spark Connect."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from pyspark.sql import SparkSession

from tidemill.errors import InvalidInput
from tidemill.spark.fan_out import Task
from tidemill.spark.session import ClassicCluster, open_session
from tidemill.spark.target import SparkTarget

T = TypeVar("T")


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
