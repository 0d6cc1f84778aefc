"""Jobs that are paused and resumed: from the outside, in the store, and while a worker has them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.contract.samples import a_job
from tests.engine import Engine, column_function, succeeded
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.errors import InvalidJobTransition, JobAlreadyActive
from tidemill.jobs.model.columns import ColumnFile, FillColumn
from tidemill.jobs.model.jobs import Job, JobState, Lease, Progress
from tidemill.jobs.model.options import BackfillRequest
from tidemill.jobs.ports import JobStore, StageExecutor, StageWatch
from tidemill.jobs.worker.leases import LeasePolicy

SOON = timedelta(seconds=30)
QUICK = LeasePolicy(cancel_poll=timedelta(milliseconds=10), max_attempts=2)


def test_a_queued_job_is_paused_at_once_and_nobody_can_claim_it(store: JobStore) -> None:
    job = a_job()
    with store.transaction() as tx:
        tx.jobs.add(job)
        assert tx.jobs.request_pause(job.job_id).state is JobState.PAUSED
        assert tx.leases.claim("w", SOON) is None
        assert tx.jobs.request_pause(job.job_id).state is JobState.PAUSED
        assert tx.jobs.resume(job.job_id).state is JobState.QUEUED
        assert tx.jobs.resume(job.job_id).state is JobState.QUEUED
        assert tx.leases.claim("w", SOON) is not None


def test_a_paused_job_keeps_its_subject_from_others(store: JobStore) -> None:
    job = a_job()
    with store.transaction() as tx:
        tx.jobs.add(job)
        tx.jobs.request_pause(job.job_id)
        with pytest.raises(JobAlreadyActive):
            tx.jobs.add(a_job(subject_id=job.subject_id))


def test_a_paused_job_is_cancelled_at_once(store: JobStore) -> None:
    job = a_job()
    with store.transaction() as tx:
        tx.jobs.add(job)
        tx.jobs.request_pause(job.job_id)
        assert tx.jobs.request_cancel(job.job_id).state is JobState.CANCELLED
        with pytest.raises(InvalidJobTransition):
            tx.jobs.resume(job.job_id)
        with pytest.raises(InvalidJobTransition):
            tx.jobs.request_pause(job.job_id)


def claimed(store: JobStore) -> tuple[str, Lease]:
    job = a_job()
    with store.transaction() as tx:
        tx.jobs.add(job)
        running = tx.leases.claim("w", SOON)
        assert running is not None
        assert running.attempt == 1
        marked = tx.jobs.request_pause(job.job_id)
        assert (marked.state, marked.pause_requested_at is None) == (JobState.RUNNING, False)
    return job.job_id, Lease(job.job_id, running.epoch, "w")


def test_a_running_job_is_put_down_by_its_worker(store: JobStore) -> None:
    job_id, lease = claimed(store)
    with store.transaction() as tx:
        paused = tx.leases.suspend(lease, Progress(done=3))
        assert (paused.state, paused.attempt, paused.progress.done) == (JobState.PAUSED, 0, 3)
        assert tx.jobs.resume(job_id).state is JobState.QUEUED
        again = tx.leases.claim("other", SOON)
        assert again is not None
        assert (again.epoch, again.attempt, again.pause_requested_at) == (2, 1, None)


@pytest.mark.parametrize("act", ["resume", "request_cancel"])
def test_a_job_resumed_or_cancelled_before_it_stopped_goes_to_a_worker_again(
    store: JobStore, act: str
) -> None:
    job_id, lease = claimed(store)
    with store.transaction() as tx:
        assert getattr(tx.jobs, act)(job_id).state is JobState.RUNNING
        assert tx.leases.suspend(lease, Progress()).state is JobState.QUEUED


class Pausing:
    """An executor that does a number of stages; in the next it has the job paused and waits to be told."""

    def __init__(self, inner: StageExecutor, stages: int, pause: Callable[[str], object]) -> None:
        self._inner = inner
        self._left = stages
        self._pause = pause

    def fill_column(self, stage: FillColumn, watch: StageWatch) -> Sequence[ColumnFile]:
        if self._left:
            self._left -= 1
            return self._inner.fill_column(stage, watch)
        self._pause(stage.job_id)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            watch.check()
            time.sleep(0.01)
        raise AssertionError("nobody told the stage to stop")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    running = Engine(tmp_path)
    yield running
    running.close()


@pytest.fixture
def table(engine: Engine) -> TableIdent:
    rows = pa.table({"x": pa.array(range(10), pa.int64())})
    ident = engine.create_table("t", rows)
    engine.append(ident, rows)
    engine.declare(ident, "y", column_function(lambda x: x, pa.int64(), "x"))
    return ident


def run_paused(engine: Engine, table: TableIdent, stages: int, **request: Any) -> Job:
    """A backfill that is paused in the stage after so many."""
    jobs = engine.operations.jobs
    working = engine.executor
    engine.executor = Pausing(  # type: ignore[assignment]  # half a port is enough
        working, stages, lambda job_id: jobs.pause(LOCAL_CALLER, job_id)
    )
    engine.worker = engine.new_worker("first", QUICK)
    engine.executor = working
    job = jobs.submit_backfill(LOCAL_CALLER, table, BackfillRequest("y", **request), None)
    return engine.run(job)


def test_a_paused_backfill_keeps_what_it_published_and_does_the_rest_later(
    engine: Engine, table: TableIdent
) -> None:
    job = run_paused(engine, table, 1, commit_granularity=1)
    assert job.state is JobState.PAUSED
    assert engine.rows(table)["y"].null_count == 10
    with pytest.raises(JobAlreadyActive):
        engine.backfill(table, "y")
    assert engine.worker.claim() is None
    engine.operations.jobs.resume(LOCAL_CALLER, job.job_id)
    engine.worker = engine.new_worker("second", QUICK)
    result = succeeded(engine.run(job))
    assert result["rows_computed"] == 10
    assert engine.rows(table)["y"].null_count == 0
    told = [event.kind for event in engine.operations.jobs.events(LOCAL_CALLER, job.job_id, 0)]
    assert [kind for kind in told if kind in {"pause_requested", "paused", "resumed", "done"}] == [
        "pause_requested",
        "paused",
        "resumed",
        "done",
    ]


def test_pausing_often_is_no_reason_to_give_up(engine: Engine, table: TableIdent) -> None:
    job = run_paused(engine, table, 0)
    for _ in range(QUICK.max_attempts + 1):
        engine.operations.jobs.resume(LOCAL_CALLER, job.job_id)
        job = engine.run(job)
        assert job.state is JobState.PAUSED


def test_a_paused_backfill_can_be_cancelled(engine: Engine, table: TableIdent) -> None:
    job = run_paused(engine, table, 0)
    assert engine.operations.jobs.cancel(LOCAL_CALLER, job.job_id).state is JobState.CANCELLED
    engine.worker = engine.new_worker("second")
    succeeded(engine.backfill(table, "y"))
