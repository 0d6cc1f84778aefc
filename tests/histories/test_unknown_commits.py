"""Jobs whose commit is not answered look what became of it, and go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.engine import Engine, Moment, column_function, succeeded
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.errors import CommitStateUnknown
from tidemill.jobs.model.jobs import Job, JobState

CALLED: list[int] = []


def doubled(x: pa.Array) -> pa.Array:
    CALLED.extend(x.to_pylist())
    return pa.array([2 * value for value in x.to_pylist()])


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    running = Engine(tmp_path)
    CALLED.clear()
    yield running
    running.close()


def is_running(job: Job) -> bool:
    return job.state is JobState.RUNNING


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_a_backfill_goes_on_after_a_commit_without_an_answer(engine: Engine, moment: Moment) -> None:
    table = engine.create_table("t", pa.table({"x": [1, 2, 3]}))
    engine.declare(table, "y", column_function(doubled, pa.int64(), "x"), "x")
    engine.publisher.dies, engine.publisher.dies_of = moment, CommitStateUnknown("nobody answered")
    interrupted = engine.backfill(table, "y")
    assert is_running(interrupted)
    assert interrupted.failure is None
    ended = engine.run(interrupted)
    succeeded(ended)
    assert engine.rows(table)["y"].to_pylist() == [2, 4, 6]
    # Values that are quicker computed than written have no checkpoint.
    assert sorted(CALLED) == ([1, 2, 3] if moment is Moment.AFTER else [1, 1, 2, 2, 3, 3])
    events = engine.operations.jobs.events(LOCAL_CALLER, ended.job_id, 0)
    assert "outcome_unknown" in [event.kind for event in events]


def test_a_job_that_never_learns_the_outcome_ends(engine: Engine) -> None:
    table = engine.create_table("t", pa.table({"x": [1, 2, 3]}))
    engine.declare(table, "y", column_function(doubled, pa.int64(), "x"), "x")
    engine.publisher.dies_of = CommitStateUnknown("nobody answered")
    engine.publisher.dies = Moment.BEFORE
    job = engine.backfill(table, "y")
    for _ in range(10):
        engine.publisher.dies = Moment.BEFORE
        job = engine.run(job)
    assert job.state is JobState.FAILED
    assert job.failure is not None
    assert "given up" in job.failure.message
