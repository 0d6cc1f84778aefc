"""Starts Spark in the background: the worker claims and plans jobs meanwhile.

Starting Spark takes seconds, and many jobs find nothing to do. So the worker does not wait for Spark; the
executor does, at the first stage of a job. Its wait ends early if the job is cancelled or paused or has lost
its lease. If Spark does not start, the waiting job is given back with the reason, and the worker exits.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from tidemill.jobs.ports import StageWatch
from tidemill.spark.cluster import SparkCluster

POLL_SECONDS: Final = 0.2


class SparkNotStarted(Exception):
    """Spark did not start, so no stage can run in this process."""


class SparkStart:
    """A cluster that is about to start, has started or has failed to."""

    def __init__(self, opening: Future[SparkCluster]) -> None:
        self._opening = opening

    @classmethod
    def begin(cls, open_cluster: Callable[[], SparkCluster], on_end: Callable[[], None]) -> SparkStart:
        """Opens the cluster in a thread of its own; calls `on_end` when that has succeeded or failed."""
        opening = ThreadPoolExecutor(1, thread_name_prefix="spark start").submit(open_cluster)
        opening.add_done_callback(lambda _: on_end())
        return cls(opening)

    @classmethod
    def of(cls, cluster: SparkCluster) -> SparkStart:
        """A cluster that has started."""
        opening: Future[SparkCluster] = Future()
        opening.set_result(cluster)
        return cls(opening)

    def find(self) -> SparkCluster | None:
        """The cluster if it has started. Raises what kept it from starting."""
        return self._opening.result() if self._opening.done() else None

    def get(self, watch: StageWatch) -> SparkCluster:
        """Waits for the cluster on behalf of a job. Raises SparkNotStarted, or what the watch raises."""
        if not self._opening.done():
            watch.tell("starting_spark", {"message": "The job waits for Spark to start."})
        while not wait([self._opening], timeout=POLL_SECONDS).done:
            watch.check()
        failure = self._opening.exception()
        if failure is not None:
            raise SparkNotStarted(reason_of(failure)) from failure
        return self._opening.result()


def reason_of(failure: BaseException) -> str:
    """One line: Spark appends traces and banners to its messages."""
    lines = str(failure).strip().splitlines()
    return f"Spark did not start: {lines[0] if lines else type(failure).__name__}"
