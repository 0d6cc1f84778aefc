"""Index builds with a real database and real Lance: interrupted, overtaken, cancelled, replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine import Engine, succeeded
from tidemill.catalog.errors import TableIndexAlreadyExists
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.jobs.model.indexes import IndexDefinition, IndexType
from tidemill.jobs.model.jobs import Job, JobState
from tidemill.jobs.model.options import IndexRequest
from tidemill.jobs.worker.indexing import IndexRunner
from tidemill.jobs.worker.leases import JobWorker, LeasePolicy
from tidemill.lance.indexes import LanceTableIndexes
from tidemill.lance.model.edits import ColumnAlteration

ROWS = pa.table({"id": pa.array(range(20), pa.int64()), "text": [f"row {number}" for number in range(20)]})


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine(tmp_path)
    yield made
    made.close()


@pytest.fixture
def table(engine: Engine) -> TableIdent:
    return engine.create_table("t", ROWS)


class PausingIndexes(LanceTableIndexes):
    """Lets something happen between the look at the table and the build."""

    meanwhile: Callable[[], object]

    def _check_buildable(self, *arguments: Any) -> None:
        super()._check_buildable(*arguments)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()


def submit(engine: Engine, table: TableIdent, column: str = "id", **more: Any) -> Job:
    definition = IndexDefinition("i", column, IndexType.BTREE, **more)
    return engine.operations.indexes.create(LOCAL_CALLER, table, MAIN_BRANCH, definition, None)


def run_while(engine: Engine, job: Job, meanwhile: Callable[[], object]) -> Job:
    indexes = PausingIndexes(engine.lake.versions, engine.lake.data)
    indexes.meanwhile = meanwhile
    runner = IndexRunner(engine.lake.store, engine.lake.versions, indexes)
    worker = JobWorker(engine.lake.store, "pausing", LeasePolicy(), {IndexRequest: runner})
    claimed = worker.claim()
    assert claimed is not None
    worker.run(claimed)
    return engine.operations.jobs.get(LOCAL_CALLER, job.job_id)


def indexed(engine: Engine, table: TableIdent) -> dict[str, tuple[list[str], int]]:
    found = engine.open(table).describe_indices()
    return {index.name: (list(index.field_names), index.num_rows_indexed) for index in found}


def test_a_build_is_one_version_and_one_part(engine: Engine, table: TableIdent) -> None:
    job = engine.run(submit(engine, table))
    assert succeeded(job)["version"] == 2
    assert (job.progress.total, job.progress.done, job.progress.commits) == (20, 20, 1)
    with engine.lake.store.transaction() as tx:
        (part,) = tx.parts.list_of(job.job_id)
    assert (part.part, part.version) == ("index", 2)


def test_what_has_landed_is_not_built_again(
    engine: Engine, table: TableIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker died after the commit and before it could say that the job is done."""
    job = submit(engine, table)
    first = engine.worker.claim()
    assert first is not None

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.worker, "_finish", die)
    with pytest.raises(KeyboardInterrupt):
        engine.worker.run(first)
    engine.worker.release(first)
    second = engine.new_worker("second")
    taken = second.claim()
    assert taken is not None
    second.run(taken)
    ended = engine.operations.jobs.get(LOCAL_CALLER, job.job_id)
    assert (succeeded(ended)["version"], engine.open(table).version) == (2, 2)


def test_a_worker_that_lost_its_lease_publishes_nothing(engine: Engine, table: TableIdent) -> None:
    job = submit(engine, table)

    def lose() -> None:
        with engine.lake.store.transaction() as tx:
            active = tx.jobs.get(job.job_id)
        engine.worker.release(active)
        with engine.lake.store.transaction() as tx:
            # As if the time had passed.
            tx._connection.exec_driver_sql("UPDATE jobs SET lease_until_at = 0")
        assert engine.worker.claim() is not None

    run_while(engine, job, lose)
    assert (indexed(engine, table), engine.open(table).version) == ({}, 1)


def test_a_cancelled_build_publishes_nothing(engine: Engine, table: TableIdent) -> None:
    job = submit(engine, table)
    claimed = engine.worker.claim()
    assert claimed is not None
    engine.operations.jobs.cancel(LOCAL_CALLER, job.job_id)
    with engine.lake.store.transaction() as tx:
        marked = tx.jobs.get(job.job_id)
    engine.worker.run(marked)
    assert engine.operations.jobs.get(LOCAL_CALLER, job.job_id).state is JobState.CANCELLED
    assert indexed(engine, table) == {}


@pytest.mark.parametrize("what", ["append", "delete", "add column", "compact", "another index"])
def test_other_writers_do_not_spoil_a_build(engine: Engine, table: TableIdent, what: str) -> None:
    engine.append(table, ROWS)
    writes: dict[str, Callable[[], object]] = {
        "append": lambda: engine.append(table, ROWS),
        "delete": lambda: engine.open(table).delete("id < 3"),
        "add column": lambda: engine.open(table).add_columns({"x": "id + 1"}),
        "compact": lambda: engine.open(table).optimize.compact_files(),
        "another index": lambda: engine.open(table).create_scalar_index("text", "BITMAP", "other"),
    }
    job = run_while(engine, submit(engine, table), writes[what])
    succeeded(job)
    assert "i" in indexed(engine, table)
    assert engine.open(table).count_rows("id = 7") >= 2


def test_an_index_that_somebody_else_made_meanwhile_fails_the_job(engine: Engine, table: TableIdent) -> None:
    job = submit(engine, table)
    engine.open(table).create_scalar_index("text", "BITMAP", "i")
    ended = engine.run(job)
    assert ended.failure is not None
    assert (ended.state, ended.failure.exception) == (JobState.FAILED, "TableIndexAlreadyExists")
    assert indexed(engine, table) == {"i": (["text"], 20)}


def test_a_column_that_went_away_meanwhile_fails_the_job(engine: Engine, table: TableIdent) -> None:
    job = submit(engine, table, "text")
    engine.operations.schemas.drop_columns(LOCAL_CALLER, table, MAIN_BRANCH, ["text"])
    ended = engine.run(job)
    assert ended.failure is not None
    assert ended.failure.exception == "TableColumnNotFound"


def test_an_index_follows_its_column_when_that_is_renamed(engine: Engine, table: TableIdent) -> None:
    engine.run(submit(engine, table))
    renamed = [ColumnAlteration("id", rename="number")]
    engine.operations.schemas.alter_columns(LOCAL_CALLER, table, MAIN_BRANCH, renamed)
    assert indexed(engine, table) == {"i": (["number"], 20)}


def test_a_name_in_use_is_refused_before_there_is_a_job(engine: Engine, table: TableIdent) -> None:
    engine.run(submit(engine, table))
    with pytest.raises(TableIndexAlreadyExists):
        submit(engine, table)
    assert succeeded(engine.run(submit(engine, table, is_replacement=True)))["version"] == 3
