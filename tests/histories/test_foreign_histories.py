"""The same random lives of tables that clients wrote without stable row ids: never a stale value."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule

from tests.engine import Engine, column_function, succeeded
from tests.histories.test_backfill_histories import BackfillHistory
from tests.histories.test_view_histories import ChunkerHistory, QueryHistory
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.state import JobState


class ForeignBackfillHistory(BackfillHistory):
    def _create_table(self, rows: pa.Table) -> TableIdent:
        return self._engine.create_foreign_table("t", rows)

    @rule()
    def compact(self) -> None:
        """Rows that were moved may have to be computed again."""
        super().compact()
        self._unsure |= set(self._x)


class ForeignChunkerHistory(ChunkerHistory):
    def _create_table(self, rows: pa.Table) -> TableIdent:
        return self._engine.create_foreign_table("source", rows)

    @rule()
    def compact_source(self) -> None:
        super().compact_source()
        self._moved |= set(self._texts)


class ForeignQueryHistory(QueryHistory):
    def _create_table(self, rows: pa.Table) -> TableIdent:
        return self._engine.create_foreign_table("source", rows)

    @rule()
    def compact_source(self) -> None:
        super().compact_source()
        self._moved |= set(self._texts)


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


SOME = settings(
    max_examples=30, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
TestForeignBackfillHistory = ForeignBackfillHistory.TestCase
TestForeignBackfillHistory.settings = SOME
TestForeignChunkerHistory = ForeignChunkerHistory.TestCase
TestForeignChunkerHistory.settings = SOME
TestForeignQueryHistory = ForeignQueryHistory.TestCase
TestForeignQueryHistory.settings = SOME
