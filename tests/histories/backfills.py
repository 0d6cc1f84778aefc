"""Random lives of a table with computed columns: many write to it, and jobs of all kinds fill it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.engine import Moment
from tests.histories.computing import Number
from tests.histories.jobs import JobHistory
from tests.histories.writes import Write
from tidemill.catalog.model.functions import FunctionKind
from tidemill.jobs.model.options import RowSelection
from tidemill.jobs.worker.backfill import MAX_CATCH_UPS

NUMBERS: Final = st.integers(-9, 9) | st.none()
ROWS: Final = st.lists(NUMBERS, min_size=1, max_size=6)
# Enough for a worker that dies to have done something before.
MORE_ROWS: Final = st.lists(NUMBERS, min_size=3, max_size=6)
PICK: Final = st.integers(0, 2)
KINDS: Final = st.sampled_from([FunctionKind.SCALAR, FunctionKind.ARRAYS])
VERSIONS: Final = st.sampled_from(["y0", "y1", "y2"])
COLUMNS: Final = st.sampled_from(["y", "y", "y", "other", "sum"])
# How a job is cut up must not matter: tasks, commits, batches, checkpoints.
CUTS: Final = st.fixed_dictionaries(
    {},
    optional={
        "task_size": st.integers(1, 3),
        "commit_granularity": st.integers(1, 2),
        "checkpoint_size": st.integers(1, 3),
        "max_checkpoint_size": st.integers(1, 3),
        "flush_interval_seconds": st.just(0.0),
    },
)
# Mostly checkpoints as small as possible: then it is known to the row what a kill may cost.
SAFE_CUTS: Final = st.builds(
    lambda cuts, rows: {**cuts, "max_checkpoint_size": rows, "flush_interval_seconds": 0.0},
    CUTS,
    st.integers(1, 3),
)
CALL: Final = st.integers(1, 4)
DEATHS: Final = st.tuples(st.sampled_from(Moment), st.integers(1, 3))
WRITES: Final = st.builds(Write, st.sampled_from(Write.KINDS), PICK, NUMBERS)
# The call in which somebody writes, or 0: before a commit. As many as a job catches up with, at most.
STEADY_WRITES: Final = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 1, 2, 3, 5]), WRITES), min_size=2, max_size=MAX_CATCH_UPS
)


class BackfillHistory(JobHistory):
    """A table is written to by many, and filled by jobs of all kinds."""

    _steps = 0

    @initialize(values=ROWS, kinds=st.tuples(*[KINDS] * 5))
    def create(self, values: list[Number], kinds: Sequence[FunctionKind]) -> None:
        self.begin(values, kinds)

    @rule(values=ROWS)
    def append(self, values: list[Number]) -> None:
        self.table.append(values)
        self.observe()

    @rule(pick=PICK, value=NUMBERS)
    def update_input(self, pick: int, value: Number) -> None:
        self.table.update(pick, "x", value)
        self.observe()

    @rule(pick=PICK, value=NUMBERS, column=COLUMNS)
    def write_into_computed_column(self, pick: int, value: Number, column: str) -> None:
        self.table.update(pick, column, value)
        self.observe()

    @rule(pick=PICK, value=NUMBERS, column=st.sampled_from(["x", "y"]))
    def write_in_place(self, pick: int, value: Number, column: str) -> None:
        self.table.update_in_place(pick, column, value)
        self.observe()

    @rule(pick=PICK, column=st.sampled_from(["x", "y", "note"]))
    def write_what_matters_to_nobody(self, pick: int, column: str) -> None:
        """Another column, or the value that is there already."""
        if column == "note":
            self.table.update_note(pick)
        else:
            self.table.rewrite(pick, column)
        self.observe()

    @rule(pick=PICK, values=ROWS)
    def upsert(self, pick: int, values: list[Number]) -> None:
        self.table.upsert(pick, values)
        self.observe()

    @rule(pick=PICK, is_fragment=st.booleans())
    def delete(self, pick: int, is_fragment: bool) -> None:
        table = self.table
        table.delete(table.of_fragment(pick) if is_fragment else table.spared(pick))
        self.observe()

    @rule()
    def compact(self) -> None:
        self.table.compact()
        self.observe()

    @rule(kind=st.sampled_from(["index", "empty column", "filled column"]))
    def change_what_is_beside_the_rows(self, kind: str) -> None:
        if kind == "index":
            self.table.index_input()
        else:
            self.table.add_column(is_filled=kind == "filled column")
        self.observe()

    @rule(column=st.sampled_from(["x", "x", "y", "note", "spare"]), past_the_catalog=st.booleans())
    def rename_by_a_client(self, column: str, past_the_catalog: bool) -> None:
        self.table.rename(column, past_the_catalog=past_the_catalog)
        self.observe()

    @rule(past_the_catalog=st.booleans())
    def swap_by_a_client(self, past_the_catalog: bool) -> None:
        self.table.swap(past_the_catalog=past_the_catalog)
        self.observe()

    @rule(column=st.sampled_from(["x", "y", "note"]))
    def rename_through_the_catalog(self, column: str) -> None:
        self.rename_column(column)

    @rule(kept=st.sampled_from([1, 1, 2, 4]))
    def clean_up(self, kept: int) -> None:
        self.table.clean_up(kept)
        self.observe()

    @rule(back=st.integers(0, 8))
    def restore(self, back: int) -> None:
        self.table.restore(back)
        self.observe()

    @rule()
    def overwrite(self) -> None:
        self.table.overwrite()
        self.observe()

    @rule(column=COLUMNS)
    def fill_a_new_branch(self, column: str) -> None:
        self.run_on_branch(column)

    @rule(version=VERSIONS)
    def alter(self, version: str) -> None:
        self.alter_function(version)

    @rule(column=COLUMNS, cuts=CUTS)
    def backfill(self, column: str, cuts: dict[str, Any]) -> None:
        self.run_plain(column, cuts)

    @rule(column=COLUMNS)
    def backfill_twice(self, column: str) -> None:
        self.run_plain(column, {})
        self.run_plain(column, {})

    @rule(column=COLUMNS, cuts=CUTS, first=WRITES, write=WRITES)
    def backfill_while_somebody_writes(
        self, column: str, cuts: dict[str, Any], first: Write, write: Write
    ) -> None:
        self.write(first)
        self.run_disturbed(column, cuts, write)

    @rule(column=COLUMNS, cuts=CUTS, first=WRITES, writes=STEADY_WRITES)
    def backfill_beside_writers(
        self, column: str, cuts: dict[str, Any], first: Write, writes: list[tuple[int, Write]]
    ) -> None:
        self.write(first)
        self.run_beside_writers(column, cuts, writes)
        self.run_plain(column, cuts)

    @rule(column=COLUMNS, cuts=CUTS, first=WRITES, death=DEATHS)
    def crash_and_take_over(
        self, column: str, cuts: dict[str, Any], first: Write, death: tuple[Moment, int]
    ) -> None:
        """A worker dies at one of its commits; another one takes the job up."""
        self.write(first)
        self.run_crashing(column, cuts, death, None)

    @rule(cuts=CUTS, first=WRITES, death=DEATHS, write=WRITES)
    def crash_and_take_over_after_a_write(
        self, cuts: dict[str, Any], first: Write, death: tuple[Moment, int], write: Write
    ) -> None:
        self.write(first)
        self.run_crashing("y", cuts, death, write)

    @rule(column=COLUMNS, cuts=SAFE_CUTS | CUTS, new=MORE_ROWS, call=CALL, write=st.none() | WRITES)
    def kill_inside_a_function(
        self, column: str, cuts: dict[str, Any], new: list[Number], call: int, write: Write | None
    ) -> None:
        """A worker dies in the middle of a batch; another one takes the job up, maybe after a write."""
        self.append(new)
        self.run_killed(column, cuts, call, write)

    @rule(limit=st.integers(-9, 9), cuts=CUTS)
    def backfill_where(self, limit: int, cuts: dict[str, Any]) -> None:
        self.run_where(limit, cuts)

    @rule(limit=st.integers(-9, 9), moment=st.sampled_from(Moment), commit=st.integers(1, 2))
    def crash_in_backfill_where(self, limit: int, moment: Moment, commit: int) -> None:
        """What was published is safe; only what was not needs a checkpoint."""
        safety = {"flush_interval_seconds": 0.0} if moment is Moment.BEFORE else {}
        self.run_where(limit, {"commit_granularity": 1, **safety}, (moment, commit))

    @rule(selection=st.sampled_from([RowSelection.STALE, RowSelection.MISSING]), cuts=CUTS)
    def backfill_only(self, selection: RowSelection, cuts: dict[str, Any]) -> None:
        self.run_only(selection, cuts)

    @rule(fragments=st.integers(1, 2), cuts=CUTS, first=WRITES, write=st.none() | WRITES)
    def backfill_some_fragments(
        self, fragments: int, cuts: dict[str, Any], first: Write, write: Write | None
    ) -> None:
        self.write(first)
        self.run_partly({**cuts, "num_frags": fragments}, write)

    @rule(back=st.integers(0, 8), cuts=CUTS, write=st.none() | WRITES)
    def backfill_an_older_version(self, back: int, cuts: dict[str, Any], write: Write | None) -> None:
        versions = self.table.versions
        version = versions[max(0, len(versions) - 1 - back)]
        note(f"pinned to {version}, now at {versions[-1]}")
        self.run_partly({**cuts, "read_version": version}, write)

    @rule(cuts=CUTS, first=WRITES, second=WRITES)
    def backfill_the_version_before_a_write(self, cuts: dict[str, Any], first: Write, second: Write) -> None:
        self.write(first)
        version = self.table.versions[-1]
        self.write(second)
        self.run_partly({**cuts, "read_version": version})

    @rule(column=COLUMNS)
    def ask_what_is_out_of_date(self, column: str) -> None:
        self.check_claims(column)

    @invariant()
    def what_is_said_of_rows_is_right(self) -> None:
        """Asking takes as long as a write: every third step is enough."""
        self._steps += 1
        if self._steps % 3 == 0:
            self.check_claims("y")

    def write(self, write: Write) -> None:
        """Right before a job, so that it has something to do."""
        self.table.do(write)
        self.observe()


class ForeignBackfillHistory(BackfillHistory):
    """Without stable row ids a row that is moved is another one, and has to be computed again."""

    has_stable_row_ids = False
