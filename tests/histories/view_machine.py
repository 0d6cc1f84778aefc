"""Random lives of the sources of views: after every refresh a view equals what its definition yields.

The machine that all kinds of views share; the kinds are in `views`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

import lance
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.engine import FUNCTION_CALLS, Moment, succeeded
from tests.histories.lakes import TemporaryLake
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.columns import BatchPolicy
from tidemill.jobs.model.jobs import JobState
from tidemill.jobs.model.options import RefreshRequest
from tidemill.jobs.model.views import RefreshPolicy
from tidemill.jobs.worker.refresh import MAX_TRIES

TEXT = st.text("ab ", max_size=6)
GROUP = st.one_of(st.none(), st.integers(0, 3))
ROWS = st.lists(st.tuples(TEXT, GROUP), min_size=1, max_size=5)
# Enough for a worker that dies to have done something before.
MORE_ROWS = st.lists(st.tuples(TEXT, GROUP), min_size=3, max_size=5)
PICK = st.integers(0, 3)
# Half of the changes are followed up at once.
THEN = st.booleans()
CALLS: list[Any] = []
SPARES = ("b", "a b", "", "b b a")
# A value that no source row has.
EDITED = "edited"


@dataclass(frozen=True)
class SourceRow:
    """`spare` is a text that clients exchange for the other one."""

    text: str
    group: int | None
    spare: str = ""


@dataclass(frozen=True)
class SourceWrite:
    """What somebody else does to the source while a job runs."""

    kind: str
    pick: int
    text: str


WRITES = st.builds(SourceWrite, st.sampled_from(["append", "text", "text", "group", "delete"]), PICK, TEXT)
# How many results are in a batch and in a checkpoint; None as the engine chooses.
BATCH_ROWS = st.sampled_from([None, 1, 1, 2, 3])
CALL = st.integers(1, 4)
# The call in which somebody writes, or 0: before the commit.
STEADY_WRITES = st.lists(st.tuples(st.integers(0, 4), WRITES), min_size=2, max_size=5)
# So that a table does not grow without end.
MOST_OVERWRITTEN = 12
Rows = Mapping[int, SourceRow]
Shown = Counter[tuple[Any, ...]]


def note_call(given: Any) -> None:
    CALLS.append(given)
    FUNCTION_CALLS.called()


def rename(dataset: lance.LanceDataset, **names: str) -> None:
    """All in one commit."""
    changes: list[Any] = [{"path": old, "name": new} for old, new in names.items()]
    dataset.alter_columns(*changes)


class ViewHistory(RuleBasedStateMachine):
    """`known` remembers the source's rows at every version the view was refreshed to.

    `label` is a column that somebody adds to the view and writes into by hand.
    """

    calls_functions = True
    has_exact_calls = True
    has_labels = True
    # A column of the view that others change by hand; None if they only remove rows.
    edited_column: str | None = None

    @initialize(rows=ROWS)
    def create(self, rows: list[tuple[str, int | None]]) -> None:
        self._lake = TemporaryLake()
        self.engine = self._lake.engine
        self._next_id = 0
        # Everything that the view has ever shown.
        self._made: set[tuple[int, SourceRow]] = set()
        self.rows: dict[int, SourceRow] = {}
        # What was there at the last refresh, as far as it was not touched since.
        self._settled: dict[int, SourceRow] = {}
        # What others wrote into since, in one column.
        self._edited: dict[int, SourceRow] = {}
        self.table = self.create_table(self.new_rows(rows))
        self.view = self.create_view()
        self._shown: Shown = Counter()
        self._compared: tuple[int, Shown] | None = None
        self._known: dict[int, dict[int, SourceRow]] = {}
        self._labels: dict[Any, str] | None = None
        self._past: dict[int, dict[int, SourceRow]] = {}
        # Whether fewer calls than expected may be needed, and whether others may.
        self._may_reuse = False
        self._is_doubtful = False
        # Whether the source cannot be read any more as it was at the last refresh.
        self._is_past_gone = False
        # What a worker that died may have left behind as checkpoints.
        self._banked: set[Any] = set()

    def teardown(self) -> None:
        if hasattr(self, "_lake"):
            self._lake.remove()

    @rule(rows=ROWS, then=THEN)
    def append(self, rows: list[tuple[str, int | None]], then: bool) -> None:
        self.engine.append(self.table, self.new_rows(rows))
        self._follow_up(then)

    @rule(pick=PICK, text=TEXT, then=THEN)
    def update_text(self, pick: int, text: str, then: bool) -> None:
        ids = self.picked(pick)
        self.engine.open(self.table).update({"text": f"'{text}'"}, where=among(ids))
        self.rows.update({row_id: replace(self.rows[row_id], text=text) for row_id in ids})
        self._follow_up(then)

    @rule(pick=PICK, group=GROUP, then=THEN)
    def update_group(self, pick: int, group: int | None, then: bool) -> None:
        ids = self.picked(pick)
        value = "CAST(NULL AS BIGINT)" if group is None else str(group)
        self.engine.open(self.table).update({"grp": value}, where=among(ids))
        self.rows.update({row_id: replace(self.rows[row_id], group=group) for row_id in ids})
        self._follow_up(then)

    @rule(pick=PICK)
    def touch(self, pick: int) -> None:
        """A write that changes nothing."""
        self.engine.open(self.table).update({"text": "text"}, where=among(self.picked(pick)))

    @rule(pick=PICK, then=THEN)
    def delete(self, pick: int, then: bool) -> None:
        ids = self.picked(pick)
        self.engine.open(self.table).delete(among(ids))
        for row_id in ids:
            del self.rows[row_id]
        self._follow_up(then)

    @rule()
    def compact_source(self) -> None:
        self.engine.open(self.table).optimize.compact_files(target_rows_per_fragment=64)

    @rule()
    def compact_view(self) -> None:
        self.engine.open(self.view).optimize.compact_files(target_rows_per_fragment=64)

    @rule()
    def add_column_to_source(self) -> None:
        handle = self.engine.open(self.table)
        handle.add_columns(pa.field(f"extra{handle.version}", pa.int32()))

    @precondition(lambda self: self.has_labels)
    @rule(number=st.integers(0, 9), pick=PICK, text=TEXT)
    def label_rows(self, number: int, pick: int, text: str) -> None:
        """Everything that is in the view now gets a label of its own; then some rows change."""
        self.refresh()
        handle = self.engine.open(self.view)
        if self._labels is None:
            handle.add_columns(pa.field("label", pa.string()))
            handle = self.engine.open(self.view)
        handle.update({"label": f"concat('{number}-', {self.label_source()})"})
        self._labels = self.found_labels()
        self.update_text(pick=pick, text=text, then=True)

    @rule(then=THEN)
    def swap_texts(self, then: bool) -> None:
        """A client renames columns: the name that the view reads stands for another one afterwards."""
        rename(self.engine.open(self.table), text="aside")
        rename(self.engine.open(self.table), spare="text", aside="spare")
        swapped = {i: replace(row, text=row.spare, spare=row.text) for i, row in self.rows.items()}
        self.rows = swapped
        self._follow_up(then)

    @rule(then=THEN)
    def swap_texts_past_the_catalog(self, then: bool) -> None:
        location = self.engine.open(self.table).uri
        rename(lance.dataset(location), text="aside")
        rename(lance.dataset(location), spare="text", aside="spare")
        self.rows = {i: replace(row, text=row.spare, spare=row.text) for i, row in self.rows.items()}
        self._follow_up(then)

    @rule(back=st.integers(0, 6), then=THEN)
    def restore_source(self, back: int, then: bool) -> None:
        """New rows may get the ids of rows that were there before."""
        versions = sorted(self._past)
        if not versions:
            return
        version = versions[max(0, len(versions) - 1 - back)]
        self.engine.open(self.table).checkout_version(version).restore()
        self.rows = dict(self._past[version])
        self._may_reuse = True
        self._follow_up(then)

    @rule(kept=st.sampled_from([1, 1, 2, 4]))
    def clean_up_source(self, kept: int) -> None:
        """Keeps a few of the latest versions."""
        handle = self.engine.open(self.table)
        with self.engine.lake.store.reading() as tx:
            view = tx.tables.get(self.view)
        assessor = self.engine.lake.view_assessor
        consumed = assessor.progress(assessor.get_view(view)).first.coverage.watermark
        handle.cleanup_old_versions(timedelta(0), retain_versions=kept)
        left = {version["version"] for version in handle.versions()}
        self._is_past_gone |= consumed not in left
        for states in (self._past, self._known):
            for version in [version for version in states if version not in left]:
                del states[version]

    @rule()
    def clean_up_view(self) -> None:
        self.engine.open(self.view).cleanup_old_versions(timedelta(0))

    @rule(pick=PICK, is_deleted=st.booleans(), then=THEN)
    def edit_view(self, pick: int, is_deleted: bool, then: bool) -> None:
        """Others remove rows of the view, or write into a column that a function or an expression made."""
        handle = self.engine.open(self.view)
        rows = handle.scanner(with_row_id=True).to_table().to_pylist()[pick::3]
        if not rows:
            return
        where = f"_rowid IN ({', '.join(str(row['_rowid']) for row in rows)})"
        if is_deleted or self.edited_column is None:
            handle.delete(where)
        else:
            handle.update({self.edited_column: f"'{EDITED}'"}, where=where)
        for row in rows:
            self.unsettle(row)
        self._shown = self.found()
        if self._labels is not None:
            self._labels = self.found_labels()
        self._follow_up(then)

    @rule(rows=ROWS, number=st.integers(0, MOST_OVERWRITTEN), then=THEN)
    def overwrite_source(self, rows: list[tuple[str, int | None]], number: int, then: bool) -> None:
        """All rows get other ids; some hold what there was before."""
        kept = [(row.text, row.group) for row in list(self.rows.values())[:number]]
        rows = [*rows, *kept][-MOST_OVERWRITTEN:]
        self.rows = {}
        self._edited.clear()
        self.engine.open(self.table).insert(self.new_rows(rows), mode="overwrite")
        self._follow_up(then)

    @rule()
    def refresh(self) -> None:
        before = self.engine.latest_version(self.view)
        kept = self.unchanged()
        labels = dict(self._labels or {})
        CALLS.clear()
        result = succeeded(self.engine.refresh(self.view))
        if result["mode"] == "no_op":
            assert self.engine.latest_version(self.view) == before
            assert not CALLS
        self.check_calls(kept)
        if result["mode"] != "no_op":
            self._banked.clear()
        self._settle()
        self._known[result["source_version"]] = dict(self.rows)
        self.check_labels(labels, kept)

    @rule()
    def refresh_again_does_nothing(self) -> None:
        self.refresh()
        before = self.engine.latest_version(self.view)
        CALLS.clear()
        assert succeeded(self.engine.refresh(self.view))["mode"] == "no_op"
        assert self.engine.latest_version(self.view) == before
        assert not CALLS

    @rule(data=st.data())
    def refresh_to_an_older_version_and_back(self, data: st.DataObject) -> None:
        if not self._known:
            return
        version = data.draw(st.sampled_from(sorted(self._known)))
        succeeded(self.engine.refresh(self.view, source_version=version))
        assert self.found() == self.expected(self._known[version])
        self.no_two_rows_have_the_same_id()
        succeeded(self.engine.refresh(self.view))
        self._settle()

    @rule(moment=st.sampled_from(Moment))
    def crash_and_take_over(self, moment: Moment) -> None:
        kept = self.unchanged()
        CALLS.clear()
        job = self.engine.operations.jobs.submit_refresh(LOCAL_CALLER, self.view, RefreshRequest(), None)
        succeeded(self.engine.crash_and_take_over(job, moment))
        # The successor does not repeat the calls of the worker that died.
        self.check_calls(kept)
        self._banked.update(CALLS)
        self._settle()

    @precondition(lambda self: self.calls_functions)
    @rule(new=MORE_ROWS, call=CALL, rows=BATCH_ROWS, write=st.none() | WRITES)
    def kill_inside_a_function(
        self, new: list[tuple[str, int | None]], call: int, rows: int | None, write: SourceWrite | None
    ) -> None:
        """The worker dies inside a call; another one takes the job up, maybe after a write."""
        self.append(rows=new, then=False)
        labels, lost = dict(self._labels or {}), Counter[Any]()
        before = self.needed_calls(self.unchanged())

        def meanwhile() -> None:
            lost.update(CALLS[-self.most_unsaved(rows) :])
            if write is not None:
                lost.update(self._written_over(write))

        CALLS.clear()
        self.engine.operations.jobs.submit_refresh(LOCAL_CALLER, self.view, RefreshRequest(), None)
        with self._batches_of(rows):
            result = succeeded(self.engine.kill_and_take_over(call, meanwhile))
        kept = self.unchanged()
        # A row that is deleted meanwhile may leave its result to another, too late.
        expected = self.needed_calls(kept)
        self.compare_calls(expected, lost + (before - expected))
        if result["mode"] == "no_op":
            self._banked.update(CALLS)
        else:
            self._banked.clear()
        self._settle()
        self.check_labels(labels, kept)

    @rule(new=ROWS, writes=STEADY_WRITES)
    def refresh_beside_writers(
        self, new: list[tuple[str, int | None]], writes: list[tuple[int, SourceWrite]]
    ) -> None:
        """A refresh shows what was there when it began; the next one follows."""
        self.append(rows=new, then=False)
        rows, labels, kept = dict(self.rows), dict(self._labels or {}), self.unchanged()
        expected = self.needed_calls(kept)
        CALLS.clear()
        FUNCTION_CALLS.watch({call: partial(self.write_source, write) for call, write in writes if call})
        self._before_commits([partial(self.write_source, write) for call, write in writes if not call])
        result = succeeded(self.engine.refresh(self.view))
        self._nobody_interferes()
        self.compare_calls(expected)
        if result["mode"] != "no_op":
            self._banked.clear()
        self._settle(rows)
        self.check_labels(labels, kept)
        self.refresh()

    @rule(new=ROWS, picks=st.lists(PICK, min_size=1, max_size=MAX_TRIES + 1), is_deleted=st.booleans())
    def refresh_while_others_edit_the_view(
        self, new: list[tuple[str, int | None]], picks: list[int], is_deleted: bool
    ) -> None:
        """It gives up after some tries; whatever it did, the next one makes up for it, with no more calls."""
        self.append(rows=new, then=False)
        before = self.needed_calls(self.unchanged())
        CALLS.clear()
        self._before_commits(
            [partial(self.edit_view, pick=pick, is_deleted=is_deleted, then=False) for pick in picks]
        )
        job = self.engine.refresh(self.view)
        self._nobody_interferes()
        assert job.state is JobState.DONE or "nothing was published" in str(job.failure)
        # An edit may leave the view with what a function was called for before it.
        expected = self.needed_calls(self.unchanged())
        succeeded(self.engine.refresh(self.view))
        self.compare_calls(expected, before - expected)
        self._banked.clear()
        self._settle()

    @rule()
    def full_refresh(self) -> None:
        kept, labels = self.unchanged(), dict(self._labels or {})
        assert succeeded(self.engine.refresh(self.view, policy=RefreshPolicy.FULL))["mode"] == "full"
        self._settle()
        self.check_labels(labels, kept)

    @rule(rows=st.one_of(st.none(), st.integers(1, 3)))
    def verify(self, rows: int | None) -> None:
        self.refresh()
        assert self.engine.verify(self.view, rows)["is_same"]

    @invariant()
    def remember_source(self) -> None:
        if hasattr(self, "_past"):
            self._past[self.engine.latest_version(self.table)] = dict(self.rows)

    @invariant()
    def view_shows_the_last_refresh(self) -> None:
        """Looks only if the view, or what it should show, is not what was compared last."""
        if hasattr(self, "_shown"):
            now = self.engine.latest_version(self.view), self._shown
            if now != self._compared:
                assert self.found() == self._shown
                self.no_two_rows_have_the_same_id()
                self._compared = now

    def no_two_rows_have_the_same_id(self) -> None:
        """Indexes, computed columns and views of the view know its rows by their ids."""
        rows = self.engine.open(self.view).scanner(columns=[], with_row_id=True).to_table()
        ids = Counter(rows["_rowid"].to_pylist())
        assert not [row_id for row_id, times in ids.items() if times > 1]

    def create_table(self, rows: pa.Table) -> TableIdent:
        return self.engine.create_table("source", rows)

    def create_view(self) -> TableIdent:
        raise AssertionError("made by each kind")

    def expected(self, rows: Rows) -> Shown:
        raise AssertionError("made by each kind")

    def found(self) -> Shown:
        raise AssertionError("made by each kind")

    def expected_calls(self, kept: Rows) -> Counter[Any]:
        """One for each row that was not there, or not like this, at the last refresh."""
        return Counter(row.text for row_id, row in self.rows.items() if row_id not in kept)

    def results_of_gone_rows(self) -> set[Any]:
        """Inputs whose results the view still has for rows that are gone."""
        return {row.text for row_id, row in self._settled.items() if row_id not in self.rows}

    def inputs_of(self, rows: Rows, ids: set[int]) -> Counter[Any]:
        """What the functions are called with for some of the rows."""
        return Counter(rows[row_id].text for row_id in ids if row_id in rows)

    def most_unsaved(self, rows: int | None) -> int:
        """How many results are in no checkpoint while a task runs, if batches have so many rows."""
        return rows or len(CALLS)

    def label_source(self) -> str:
        """An expression that is different for every row of the view."""
        return "CAST(id AS STRING)"

    def found_labels(self) -> dict[Any, str]:
        rows = self.engine.rows(self.view).to_pylist()
        return {self.label_key(row): row["label"] for row in rows}

    def label_key(self, row: dict[str, Any]) -> Any:
        return row["id"]

    def check_labels(self, before: dict[Any, str], kept: Rows) -> None:
        """What was written beside rows that are still in the view is still there."""
        if self._labels is None:
            return
        now = self.found_labels()
        for key, label in before.items():
            if key in now and self.keeps_label(key, kept):
                assert now[key] == label, key
        self._labels = now

    def keeps_label(self, key: Any, kept: Rows) -> bool:
        return key in self.rows

    def check_calls(self, kept: Rows, lost: Counter[Any] | None = None) -> None:
        self.compare_calls(self.needed_calls(kept), lost)

    def needed_calls(self, kept: Rows) -> Counter[Any]:
        """Without those whose results the view has for other rows."""
        expected = self.expected_calls(kept)
        if self._may_reuse:
            return expected
        found = set() if self._is_past_gone else self.results_of_gone_rows()
        return Counter({given: times for given, times in expected.items() if given not in found})

    def compare_calls(self, expected: Counter[Any], lost: Counter[Any] | None = None) -> None:
        """`lost` are calls whose results are in no checkpoint, or are for what rows do not hold any more."""
        if not self.has_exact_calls or self._is_doubtful:
            return
        more = lost or Counter()
        spared = expected - Counter(CALLS)
        is_exact = Counter(CALLS) <= expected + more and (self._may_reuse or spared.keys() <= self._banked)
        assert is_exact, f"{CALLS} instead of {expected}, {more} may be lost"

    def unsettle(self, row: dict[str, Any]) -> None:
        """Others changed a row of the view: what it was made from counts as touched."""
        if "id" in row:
            self._settled.pop(row["id"], None)
        else:
            self._is_doubtful = True

    def unchanged(self) -> dict[int, SourceRow]:
        return {
            i: row for i, row in self._settled.items() if self.watched(self.rows.get(i)) == self.watched(row)
        }

    def watched(self, row: SourceRow | None) -> Any:
        """What of a row the view has to do with."""
        return None if row is None else row.text

    def new_rows(self, rows: list[tuple[str, int | None]]) -> pa.Table:
        ids = list(range(self._next_id, self._next_id + len(rows)))
        self._next_id += len(rows)
        spares = [SPARES[i % len(SPARES)] for i in ids]
        self.rows.update(
            {i: SourceRow(*row, spares[n]) for n, (i, row) in enumerate(zip(ids, rows, strict=True))}
        )
        texts, groups = [row[0] for row in rows], [row[1] for row in rows]
        return pa.table({"id": ids, "text": texts, "grp": pa.array(groups, pa.int64()), "spare": spares})

    def picked(self, pick: int) -> set[int]:
        """About a third of the rows, and one at least if there are any."""
        ids = sorted(self.rows)
        return set(ids[pick % len(ids) :: 3]) if ids else set()

    def write_source(self, write: SourceWrite) -> None:
        match write.kind:
            case "append":
                self.append(rows=[(write.text, write.pick)], then=False)
            case "text":
                self.update_text(pick=write.pick, text=write.text, then=False)
            case "group":
                self.update_group(pick=write.pick, group=write.pick, then=False)
            case _:
                self.delete(pick=write.pick, then=False)

    def _before_commits(self, actions: list[Callable[[], None]]) -> None:
        """One before each attempt to publish, as long as there are any."""
        publisher = self.engine.publisher

        def act() -> None:
            publisher.before_next = act if actions[1:] else None
            actions.pop(0)()

        publisher.before_next = act if actions else None

    def _nobody_interferes(self) -> None:
        self.engine.publisher.before_next = None
        FUNCTION_CALLS.watch({})

    def _written_over(self, write: SourceWrite) -> Counter[Any]:
        """Writes, and returns what the rows it changes held before."""
        before = dict(self.rows)
        self.write_source(write)
        changed = {row_id for row_id in before if self.rows.get(row_id) != before[row_id]}
        return self.inputs_of(before, changed)

    @contextmanager
    def _batches_of(self, rows: int | None) -> Iterator[None]:
        executor = self.engine.inline_executor
        if rows is not None:
            executor.view_batches = BatchPolicy(rows, max_rows=rows, flush_interval=timedelta(0))
        yield
        executor.view_batches = None

    def _follow_up(self, then: bool) -> None:
        if then:
            self.refresh()

    def _settle(self, rows: Rows | None = None) -> None:
        """The view shows these rows, or those there are now."""
        shown = self.rows if rows is None else rows
        self._shown = self.expected(shown)
        self._settled = dict(shown)
        self._edited.clear()
        self._is_doubtful = self._is_past_gone = False
        self._made.update(shown.items())
        if self._labels is not None:
            self._labels = self.found_labels()


def among(ids: set[int]) -> str:
    return f"id IN ({', '.join(map(str, sorted(ids) or [-1]))})"
