"""Runs the stages of a job on Spark: fans out the work, watches the tasks and collects their results.

The worker calls one method per stage and blocks until it is done. Each method waits until Spark has started
(see `tidemill.spark.startup`), splits the stage into shares, ships one function per share to Spark and runs
the Spark call in a thread, so that this thread can poll meanwhile. Every `POLL_SECONDS` it reads the reports
that tasks leave in a scratch directory (see `tidemill.spark.task_reports`), passes the progress on and calls
`watch.check`, which raises if the job is paused, cancelled or has lost its lease.

When a row fails, a task reports the failure as a file and ends normally. If it raised instead, Spark might
retry the task, and the driver would only get a Java stack trace. Whatever ends the watch, the Spark job group
is cancelled until its call has returned, and the scratch directory is removed. Otherwise tasks of an
abandoned stage would keep running beside those of its successor.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import cache
from typing import Any, Final, TypeVar, assert_never

from tidemill.catalog.ports import Cipher
from tidemill.catalog.sealed_variables import opened_variables
from tidemill.functions.api import FunctionRaised
from tidemill.functions.isolation.pool import FunctionHost, Isolation, warm_up
from tidemill.jobs.model.columns import ColumnFile, ComputedRows, FillColumn
from tidemill.jobs.model.plans import FragmentWork
from tidemill.jobs.model.views import (
    Partition,
    RunSql,
    RunTableFunction,
    ViewStage,
    WriteViewRows,
    WrittenRows,
)
from tidemill.jobs.ports import StageWatch
from tidemill.jobs.stage_errors import RowFailed, TooManyRowsSkipped
from tidemill.spark.cluster import SparkCluster, Task
from tidemill.spark.failures import SPARK_ERRORS, stage_failure
from tidemill.spark.kernels import compute_pieces, fill_fragments
from tidemill.spark.startup import SparkStart
from tidemill.spark.task_reports import StageScratch, TaskReport
from tidemill.spark.views.rows import write_view_fragments
from tidemill.spark.views.sql import run_sql
from tidemill.spark.views.table_functions import write_table_fragments

Stage = TypeVar("Stage", FillColumn, WriteViewRows, RunTableFunction)
Item = TypeVar("Item", FragmentWork, Partition)
Outcome = TypeVar("Outcome", ColumnFile, ComputedRows, WrittenRows)

POLL_SECONDS: Final = 0.2
TASKS_PER_SLOT: Final = 2


class SparkStageExecutor:
    def __init__(self, spark: SparkStart, scratch_root: str, host: FunctionHost, cipher: Cipher) -> None:
        self._spark = spark
        self._cipher = cipher
        self._scratch_root = scratch_root
        self._host = host

    def fill_column(self, stage: FillColumn, watch: StageWatch) -> Sequence[ColumnFile]:
        return self._run_tasks(stage, fill_fragments, watch)

    def compute_rows(self, stage: FillColumn, watch: StageWatch) -> Sequence[ComputedRows]:
        return self._run_tasks(stage, compute_pieces, watch)

    def write_view(self, stage: ViewStage, watch: StageWatch) -> WrittenRows:
        match stage:
            case WriteViewRows():
                parts = self._write_rows(stage, watch)
            case RunTableFunction():
                parts = self._run_table_function(stage, watch)
            case RunSql():
                parts = self._run_sql(stage, watch)
            case _:
                assert_never(stage)
        return combine_rows(parts)

    def _write_rows(self, stage: WriteViewRows, watch: StageWatch) -> list[WrittenRows]:
        shares = split_into_shares(stage.tasks, stage.parallelism or len(stage.tasks))
        return self._run(stage, write_view_fragments, shares, watch, self._host)

    def _run_table_function(self, stage: RunTableFunction, watch: StageWatch) -> list[WrittenRows]:
        tasks = stage.parallelism or self._spark.get(watch).slots * TASKS_PER_SLOT
        shares = [stage.partitions[first::tasks] for first in range(min(tasks, len(stage.partitions)))]
        return self._run(stage, write_table_fragments, shares, watch, self._host)

    def _run_sql(self, stage: RunSql, watch: StageWatch) -> list[WrittenRows]:
        cluster = self._spark.get(watch)
        scratch = StageScratch(self._scratch_root)
        slots = stage.parallelism or cluster.slots
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(
                cluster.query,
                stage.job_id,
                lambda session: run_sql(session, stage, slots, scratch.location),
            )
            try:
                self._watch(running, scratch, watch, None)
                return _outcomes(running, scratch)
            finally:
                _stop(cluster, running, stage.job_id)
                scratch.remove()

    def _run_tasks(
        self,
        stage: FillColumn,
        kernel: Callable[[FillColumn, Sequence[FragmentWork], TaskReport, FunctionHost], list[Outcome]],
        watch: StageWatch,
    ) -> list[Outcome]:
        """A function suspected of having killed a task runs in its own process, to find the row at fault."""
        shares = split_into_shares(stage.tasks, stage.parallelism or len(stage.tasks))
        host = self._host.with_processes() if stage.is_suspect else self._host
        return self._run(stage, kernel, shares, watch, host)

    def _run(
        self,
        stage: Stage,
        kernel: Callable[[Stage, Sequence[Item], TaskReport, FunctionHost], list[Outcome]],
        shares: Sequence[Sequence[Item]],
        watch: StageWatch,
        host: FunctionHost,
    ) -> list[Outcome]:
        cluster = self._spark.get(watch)
        scratch = StageScratch(self._scratch_root)
        task = _task(kernel, _opened(stage, self._cipher), shares, scratch.location, host)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(_collect, cluster, stage.job_id, task, len(shares))
            try:
                self._watch(running, scratch, watch, allowed_skips(stage))
                return _outcomes(running, scratch)
            finally:
                _stop(cluster, running, stage.job_id)
                scratch.remove()

    def _watch(
        self, running: Future[Any], scratch: StageScratch, watch: StageWatch, allowed: int | None
    ) -> None:
        while not _is_done(running):
            watch.rows_done(scratch.rows_done())
            if scratch.find_failure() is not None:
                return
            check_skips(scratch, allowed)
            watch.check()
        watch.rows_done(scratch.rows_done())
        check_skips(scratch, allowed)


def prepare_functions(cluster: SparkCluster, host: FunctionHost) -> None:
    """Starts the parent processes of isolated functions, so that the first job does not wait."""

    def prepare(_: int) -> bytes:
        warm_up(host)
        return b""

    if host.isolation is not Isolation.TASK:
        cluster.run("warm-up", prepare, cluster.slots)


def _collect(cluster: SparkCluster, group: str, task: Task, tasks: int) -> list[Any]:
    answers = cluster.run(group, task, tasks)
    return [outcome for answer in answers for outcome in pickle.loads(answer)]


def _stop(cluster: SparkCluster, running: Future[Any], group: str) -> None:
    """Cancels until the call returns: Spark ignores a cancellation that precedes the start of the job."""
    while not _is_done(running):
        cluster.cancel(group)


def check_skips(scratch: StageScratch, allowed: int | None) -> None:
    if allowed is not None and scratch.rows_skipped() > allowed:
        raise TooManyRowsSkipped(scratch.skipped(), allowed)


def allowed_skips(stage: FillColumn | WriteViewRows | RunTableFunction) -> int | None:
    return stage.allowed_skips if isinstance(stage, FillColumn) else stage.policy.allowed_skips


def split_into_shares(tasks: Sequence[Sequence[FragmentWork]], shares: int) -> list[list[FragmentWork]]:
    """Distributes the tasks over a number of shares; one Spark task processes one share."""
    return [
        [item for task in tasks[first::shares] for item in task] for first in range(min(shares, len(tasks)))
    ]


def combine_rows(parts: Sequence[WrittenRows]) -> WrittenRows:
    """Combines the results of several tasks."""
    combined = WrittenRows()
    for part in parts:
        is_capped = part.covered is not None
        combined = WrittenRows(
            fragments=combined.fragments + part.fragments,
            rows=combined.rows + part.rows,
            kept=combined.kept | part.kept,
            moved=combined.moved | part.moved,
            skipped=combined.skipped | part.skipped,
            failures=combined.failures + part.failures,
            covered=part.covered if is_capped else combined.covered,
            cut=part.cut if is_capped else combined.cut,
            made=part.made if is_capped else combined.made,
            differences=combined.differences + part.differences,
            missing=combined.missing + part.missing,
            different=combined.different + part.different,
            evaluated=part.evaluated if is_capped else combined.evaluated,
            reused=combined.reused + part.reused,
            segments=combined.segments + part.segments,
        )
    return combined


def _opened(stage: FillColumn | WriteViewRows | RunTableFunction, cipher: Cipher) -> object:
    """The stage with the variables that its functions find; only tasks get it."""
    if isinstance(stage, FillColumn):
        return replace(stage, environment=opened_variables(stage.environment, cipher))
    environment = opened_variables(stage.policy.environment, cipher)
    return replace(stage, policy=replace(stage.policy, environment=environment))


def _task(
    kernel: Callable[..., list[Any]],
    stage: object,
    shares: Sequence[Sequence[Any]],
    scratch: str,
    host: FunctionHost,
) -> Task:
    """The function that Spark ships: processes a share by its number and returns pickled outcomes."""

    def run(number: int) -> bytes:
        _freeze_imports()
        report = TaskReport(scratch)
        try:
            return pickle.dumps(kernel(stage, shares[number], report, host))
        except FunctionRaised as raised:
            report.failed(raised.failure)
            return pickle.dumps([])

    return run


@cache
def _freeze_imports() -> None:
    """Once per Python worker: keeps imported modules out of the garbage collection after every task."""
    gc.freeze()


def _is_done(running: Future[Any]) -> bool:
    return bool(wait([running], timeout=POLL_SECONDS).done)


def _outcomes(running: Future[list[Outcome]], scratch: StageScratch) -> list[Outcome]:
    failure = scratch.find_failure()
    if failure is not None:
        raise RowFailed(failure)
    try:
        return running.result()
    except SPARK_ERRORS as error:
        failure_of_stage = stage_failure(error)
        if failure_of_stage is error:
            raise
        raise failure_of_stage from error
