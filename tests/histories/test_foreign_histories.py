"""The same random lives of tables that clients wrote without stable row ids: never a stale value."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule

from tests.histories.test_backfill_histories import BackfillHistory
from tests.histories.test_view_histories import ChunkerHistory, QueryHistory
from tidemill.catalog.model.identifiers import TableIdent


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


SOME = settings(
    max_examples=30, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
TestForeignBackfillHistory = ForeignBackfillHistory.TestCase
TestForeignBackfillHistory.settings = SOME
TestForeignChunkerHistory = ForeignChunkerHistory.TestCase
TestForeignChunkerHistory.settings = SOME
TestForeignQueryHistory = ForeignQueryHistory.TestCase
TestForeignQueryHistory.settings = SOME
