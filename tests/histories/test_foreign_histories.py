"""The same random lives of tables that clients wrote without stable row ids: never a stale value."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.engine import Engine, column_function, succeeded
from tests.histories.settings import follow_share
from tests.histories.view_machine import ViewHistory
from tests.histories.views import ChunkerHistory, QueryHistory
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.jobs import JobState


class ForeignChunkerHistory(ChunkerHistory):
    """Rows that were moved may be computed again, so that nothing can be said about the number of calls."""

    has_exact_calls = False
    has_labels = False
    # Row ids are addresses here, and an update gives a row another one.
    is_ordered = False

    def create_table(self, rows: pa.Table) -> TableIdent:
        return self.engine.create_foreign_table("source", rows)


class ForeignQueryHistory(QueryHistory):
    has_labels = False

    def create_table(self, rows: pa.Table) -> TableIdent:
        return self.engine.create_foreign_table("source", rows)


def tripled(x: pa.Array) -> pa.Array:
    return pc.multiply(x, 3)


def test_a_version_that_was_rewritten_meanwhile_is_not_taken_for_filled(tmp_path: Path) -> None:
    """Its rows cannot be told from those there are now; a job that said it were done would lie."""
    engine = Engine(tmp_path)
    table = engine.create_foreign_table("t", pa.table({"x": [1, 2]}))
    engine.append(table, pa.table({"x": [3]}))
    engine.declare(table, "y", column_function(tripled, pa.int64(), "x"))
    pinned = engine.open(table).version
    engine.publisher.before_next = engine.open(table).optimize.compact_files
    job = engine.backfill(table, "y", read_version=pinned)
    assert job.state is JobState.FAILED
    assert job.failure is not None
    assert "has no stable row ids" in job.failure.message
    succeeded(engine.backfill(table, "y", read_version=engine.open(table).version))
    assert engine.rows(table)["y"].to_pylist() == [3, 6, 9]
    engine.close()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("share", range(2))
@pytest.mark.parametrize("machine", [ForeignChunkerHistory, ForeignQueryHistory])
def test_random_histories(machine: type[ViewHistory], share: int) -> None:
    follow_share(machine, share, 10, 15)
