"""Stages on Spark: fan the fragments out, watch the tasks, collect what they made."""

from __future__ import annotations

import gc
import pickle
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemill.errors import TidemillError
from tidemill.jobs.errors import RowFailed
from tidemill.jobs.model.plans import FragmentWork
from tidemill.jobs.model.stages import (
    ColumnFile,
    FillColumn,
    RunTableFunction,
    ViewFragments,
    WriteViewRows,
)
from tidemill.jobs.ports import StageWatch
from tidemill.spark.fan_out import FanOut, Task, through_rdd
from tidemill.spark.functions import FunctionRaised
from tidemill.spark.kernels import fill_fragments
from tidemill.spark.scratch import StageScratch, TaskReport
from tidemill.spark.view_kernels import write_table_fragments, write_view_fragments

Stage = TypeVar("Stage", FillColumn, WriteViewRows, RunTableFunction)
Item = TypeVar("Item", FragmentWork, str | None)
Outcome = TypeVar("Outcome", ColumnFile, ViewFragments)

POLL_SECONDS: Final = 0.2
TASKS_PER_SLOT: Final = 2
# How Spark puts it.
PROCESS_ENDED: Final = "Python worker exited unexpectedly"
PYTHON_TRACE: Final = re.compile(r"PythonException: (Traceback .*?)\n\n?\tat ", re.DOTALL)
RAISED_LINE: Final = re.compile(r"[A-Za-z_][\w.]*(: |$)")


class StageFailed(TidemillError):
    """Spark could not finish a stage, for a reason that is not a row's."""


class SparkStageExecutor:
    def __init__(self, session: SparkSession, scratch_root: str, fan_out: FanOut = through_rdd) -> None:
        self._session = session
        self._scratch_root = scratch_root
        self._fan_out = fan_out

    def fill_column(self, stage: FillColumn, watch: StageWatch) -> Sequence[ColumnFile]:
        return self._run(stage, fill_fragments, share_out(stage.work, self._tasks(stage)), watch)

    def write_view_rows(self, stage: WriteViewRows, watch: StageWatch) -> ViewFragments:
        shares = share_out(stage.work, self._tasks(stage))
        return _joined(self._run(stage, write_view_fragments, shares, watch))

    def run_table_function(self, stage: RunTableFunction, watch: StageWatch) -> ViewFragments:
        tasks = self._tasks(stage)
        shares = [stage.partitions[first::tasks] for first in range(min(tasks, len(stage.partitions)))]
        return _joined(self._run(stage, write_table_fragments, shares, watch))

    def _tasks(self, stage: FillColumn | WriteViewRows | RunTableFunction) -> int:
        return stage.parallelism or self._session.sparkContext.defaultParallelism * TASKS_PER_SLOT

    def _run(
        self,
        stage: Stage,
        kernel: Callable[[Stage, Sequence[Item], TaskReport], list[Outcome]],
        shares: Sequence[Sequence[Item]],
        watch: StageWatch,
    ) -> list[Outcome]:
        scratch = StageScratch(self._scratch_root)
        task = _task(kernel, stage, shares, scratch.location)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(self._collect, stage.job_id, task, len(shares))
            try:
                self._watch(running, scratch, watch)
                return _outcomes(running, scratch)
            finally:
                self._stop(running, stage.job_id)
                scratch.remove()

    def _collect(self, group: str, task: Task, tasks: int) -> list[Any]:
        self._session.sparkContext.setJobGroup(group, f"tidemill job {group}", interruptOnCancel=True)
        answers = self._fan_out(self._session, task, tasks)
        return [outcome for answer in answers for outcome in pickle.loads(answer)]

    def _stop(self, running: Future[Any], group: str) -> None:
        """Cancels until it is over: a cancellation that comes before the job has started is not heard."""
        while not _is_done(running):
            self._session.sparkContext.cancelJobGroup(group)

    def _watch(self, running: Future[Any], scratch: StageScratch, watch: StageWatch) -> None:
        while not _is_done(running):
            watch.rows_done(scratch.rows_done())
            if scratch.find_failure() is not None:
                return
            watch.check()
        watch.rows_done(scratch.rows_done())


def share_out(work: Iterable[FragmentWork], shares: int) -> list[list[FragmentWork]]:
    """Deals fragments out so that the shares have about the same number of rows; no share is empty."""
    dealt: list[tuple[int, list[FragmentWork]]] = []
    for item in sorted(work, key=lambda item: -item.row_count):
        if len(dealt) < shares:
            dealt.append((item.row_count, [item]))
            continue
        lightest = min(range(len(dealt)), key=lambda index: dealt[index][0])
        rows, items = dealt[lightest]
        dealt[lightest] = (rows + item.row_count, [*items, item])
    return [items for _, items in dealt]


def _joined(parts: Sequence[ViewFragments]) -> ViewFragments:
    fragments = tuple(fragment for part in parts for fragment in part.fragments)
    return ViewFragments(fragments, sum(part.rows for part in parts))


def _task(
    kernel: Callable[..., list[Any]], stage: object, shares: Sequence[Sequence[Any]], scratch: str
) -> Task:
    """The function Spark ships: does the share of a number and answers with pickled outcomes."""

    def run(number: int) -> bytes:
        _settle_in()
        report = TaskReport(scratch)
        try:
            return pickle.dumps(kernel(stage, shares[number], report))
        except FunctionRaised as raised:
            report.failed(raised.failure)
            return pickle.dumps([])

    return run


@cache
def _settle_in() -> None:
    """Once per Python worker: Spark collects garbage after every task, and what is imported is none."""
    gc.freeze()


def _is_done(running: Future[Any]) -> bool:
    return bool(wait([running], timeout=POLL_SECONDS).done)


def _outcomes(running: Future[list[Outcome]], scratch: StageScratch) -> list[Outcome]:
    failure = scratch.find_failure()
    if failure is not None:
        raise RowFailed(
            failure.message if failure.row_id is None else f"row {failure.row_id}: {failure.message}",
            exception=failure.exception,
            traceback=failure.traceback,
            row_id=failure.row_id,
        )
    try:
        return running.result()
    except (PySparkException, Py4JJavaError) as error:
        if PROCESS_ENDED in str(error):
            raise StageFailed(
                "a Python process ended while the function ran in it: a crash in native code, too little "
                "memory, or an exit"
            ) from error
        trace = PYTHON_TRACE.search(str(error))
        if trace is not None:
            raise _task_failed(trace.group(1)) from error
        if isinstance(error, Py4JJavaError):
            raise
        raise StageFailed(f"Spark could not finish the stage: {error}") from error


def _task_failed(trace: str) -> RowFailed:
    """What a task raised apart from its function: no row is at fault."""
    raised = [line for line in trace.splitlines() if RAISED_LINE.match(line)]
    said = raised[-1] if raised else "no reason given"
    name = said.partition(":")[0].rpartition(".")[2]
    return RowFailed(f"a task could not go on: {said}", exception=name, traceback=trace, row_id=None)
