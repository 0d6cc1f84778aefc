"""Random lives of a table: after every backfill each row holds exactly what the function makes of it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.engine import Engine, Moment, column_function, succeeded
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.jobs import BackfillRequest

ROWS = st.lists(st.integers(-50, 50) | st.none(), min_size=1, max_size=6)
PICK = st.integers(0, 4)


def expected(x: int | None) -> int | None:
    """Null for nulls and for every seventh number: results that are rightly null must count as done."""
    return None if x is None or x % 7 == 0 else 3 * x + 1


def tripled(x: pa.Array) -> pa.Array:
    return pa.array([expected(value) for value in x.to_pylist()], pa.int64())


class BackfillHistory(RuleBasedStateMachine):
    """`stale` are the rows whose value has to be computed, `unsure` those of which we cannot see whether."""

    @initialize(values=ROWS)
    def create(self, values: list[int | None]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tidemill-history-")
        self._engine = Engine(Path(self._folder.name))
        self._next_id = 0
        self._x: dict[int, int | None] = {}
        self._stale: set[int] = set()
        self._unsure: set[int] = set()
        self._table = self._create_table(self._new_rows(values))
        for column in ("y", "other"):
            self._engine.declare(self._table, column, column_function(tripled, pa.int64(), "x"))

    def teardown(self) -> None:
        if hasattr(self, "_engine"):
            self._engine.close()
            self._folder.cleanup()

    @rule(values=ROWS)
    def append(self, values: list[int | None]) -> None:
        self._engine.append(self._table, self._new_rows(values))

    @rule(pick=PICK, value=st.integers(-50, 50))
    def update_input(self, pick: int, value: int) -> None:
        ids = self._picked(pick)
        self._engine.open(self._table).update({"x": str(value)}, where=_among(ids))
        for row_id in ids:
            self._x[row_id] = value
        self._stale |= ids

    @rule(pick=PICK)
    def update_another_column(self, pick: int) -> None:
        """Lance rewrites the rows; that costs a recomputation at most, and never a value."""
        ids = self._picked(pick)
        self._engine.open(self._table).update({"note": "'seen'"}, where=_among(ids))
        self._stale |= ids

    @rule(pick=PICK)
    def delete(self, pick: int) -> None:
        ids = self._picked(pick)
        self._engine.open(self._table).delete(_among(ids))
        for row_id in ids:
            del self._x[row_id]
        self._stale -= ids
        self._unsure -= ids

    @rule()
    def compact(self) -> None:
        self._engine.open(self._table).optimize.compact_files(target_rows_per_fragment=64)

    @rule()
    def add_unrelated_column(self) -> None:
        handle = self._engine.open(self._table)
        handle.add_columns(pa.field(f"extra{handle.version}", pa.int32()))

    @rule()
    def backfill(self) -> None:
        before = self._engine.open(self._table).version
        result = succeeded(self._engine.backfill(self._table, "y"))
        note(f"backfill: {result}")
        assert len(self._stale) <= result["rows_computed"] <= len(self._stale | self._unsure)
        if not self._stale | self._unsure:
            assert self._engine.open(self._table).version == before
        self._stale.clear()
        self._unsure.clear()

    @rule()
    def backfill_another_column(self) -> None:
        """Lance then calls every row of the fragments updated; for our column they are not."""
        succeeded(self._engine.backfill(self._table, "other"))
        found = self._engine.rows(self._table).to_pylist()
        assert [row for row in found if row["other"] != expected(row["x"])] == []

    @rule(moment=st.sampled_from(Moment))
    def crash_and_take_over(self, moment: Moment) -> None:
        """A worker dies before or after its first commit; another one takes the job up and finishes it."""
        jobs = self._engine.operations.jobs
        job = jobs.submit_backfill(
            LOCAL_CALLER, self._table, BackfillRequest("y", commit_granularity=1), None
        )
        succeeded(self._engine.crash_and_take_over(job, moment))
        self._stale.clear()
        self._unsure.clear()

    @rule(limit=st.integers(-50, 50))
    def backfill_where(self, limit: int) -> None:
        matching = {row_id for row_id, x in self._x.items() if x is not None and x > limit}
        result = succeeded(self._engine.backfill(self._table, "y", where=f"x > {limit}"))
        assert result["rows_computed"] == len(matching)
        self._stale -= matching
        self._unsure -= matching

    @rule(granularity=st.integers(1, 2), fragments=st.integers(1, 2))
    def backfill_some_fragments(self, granularity: int, fragments: int) -> None:
        job = self._engine.backfill(self._table, "y", commit_granularity=granularity, num_frags=fragments)
        succeeded(job)
        found = self._found()
        self._unsure |= {row_id for row_id in self._stale if expected(self._x[row_id]) is None}
        self._stale = {row_id for row_id in self._stale if found[row_id]["y"] != expected(self._x[row_id])}

    @precondition(lambda self: not self._stale)
    @invariant()
    def values_are_right(self) -> None:
        for row_id, row in self._found().items():
            assert row["x"] == self._x[row_id]
            assert row["y"] == expected(row["x"]), row

    @invariant()
    def no_row_is_lost_or_doubled(self) -> None:
        assert sorted(self._engine.rows(self._table)["id"].to_pylist()) == sorted(self._x)

    def _create_table(self, rows: pa.Table) -> TableIdent:
        return self._engine.create_table("t", rows)

    def _found(self) -> dict[int, dict[str, Any]]:
        return {row["id"]: row for row in self._engine.rows(self._table).to_pylist()}

    def _new_rows(self, values: list[int | None]) -> pa.Table:
        ids = list(range(self._next_id, self._next_id + len(values)))
        self._next_id += len(values)
        self._x.update(zip(ids, values, strict=True))
        self._stale.update(ids)
        return pa.table(
            {"id": ids, "x": pa.array(values, pa.int64()), "note": pa.nulls(len(ids), pa.string())}
        )

    def _picked(self, pick: int) -> set[int]:
        return {row_id for row_id in self._x if row_id % 5 == pick}


def _among(ids: set[int]) -> str:
    return f"id IN ({', '.join(map(str, sorted(ids) or [-1]))})"


TestBackfillHistory = BackfillHistory.TestCase
TestBackfillHistory.settings = settings(
    max_examples=40, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
