"""A cluster at work: what executor and worker need of a Spark session, whatever kind it is."""

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
        """How many tasks run at a time."""

    def run(self, group: str, task: Task, tasks: int) -> list[bytes]:
        """Does the tasks 0 to `tasks` - 1 under the group's name and answers in their order; blocks.

        Raises PySparkException or Py4JJavaError when Spark could not, or was cancelled.
        """

    def query(self, group: str, work: Callable[[SparkSession], T]) -> T:
        """Does the work with the session, under the group's name; blocks, and raises as run() does."""

    def cancel(self, group: str) -> None:
        """Stops what runs under the group. What has not begun does not hear it: cancel until run() ends."""

    def is_alive(self) -> bool:
        """Whether its session can still run anything."""

    def warm_up(self) -> None:
        """Starts the Python workers and has them import what tasks need, so that no job has to wait."""

    def stop(self) -> None: ...


def open_cluster(target: SparkTarget) -> SparkCluster:
    """Starts Spark, or connects to it."""
    if not target.is_connect:
        return ClassicCluster(open_session(target), target.known_slots)
    if target.known_slots is None:
        raise InvalidInput("slots", f"has to be given: {target.master} does not say how many tasks it runs")
    cluster: SparkCluster = _connect_module().ConnectCluster(target.master, target.known_slots, target.config)
    return cluster


def _connect_module() -> Any:
    """Only those who use Spark Connect have the packages that its client needs."""
    try:
        return importlib.import_module("tidemill.spark.connect")
    except ImportError as error:
        raise InvalidInput("master", f"sc:// needs pip install 'tidemill[connect]': {error}") from error
