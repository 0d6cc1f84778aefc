"""Random lives of the sources of views: after every refresh a view equals what its definition yields."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.engine import Engine, Moment, chunker_function, column_function, succeeded, table_function
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.functions import FunctionKind
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.options import RefreshRequest
from tidemill.jobs.model.views import RefreshPolicy, SourceQuery, ViewKind
from tidemill.jobs.service.views import FunctionColumn, ViewDefinition

TEXT = st.text("ab ", max_size=6)
GROUP = st.one_of(st.none(), st.integers(0, 3))
ROWS = st.lists(st.tuples(TEXT, GROUP), min_size=1, max_size=5)
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


Rows = Mapping[int, SourceRow]
Shown = Counter[tuple[Any, ...]]


def split(text: str) -> Iterator[tuple[str, int]]:
    """Nothing for blank texts: rows that yield nothing are done, too."""
    CALLS.append(text)
    for word in text.split():
        yield word, len(word)


def loud(text: str) -> str:
    CALLS.append(text)
    return text.upper()


def negative(group: int | None) -> int | None:
    return None if group is None else -group


def negated(group: int | None) -> int | None:
    CALLS.append(("group", group))
    return negative(group)


def rename(dataset: lance.LanceDataset, **names: str) -> None:
    """All in one commit."""
    changes: list[Any] = [{"path": old, "name": new} for old, new in names.items()]
    dataset.alter_columns(*changes)


def summed(source: Any) -> Iterator[pa.RecordBatch]:
    """A row for each row of the source and one for all of them."""
    rows = source.to_arrow().to_pylist()
    CALLS.append(len(rows))
    texts = sorted(row["text"] for row in rows)
    yield pa.record_batch(
        {"what": pa.array([*texts, "all"]), "size": pa.array([*map(len, texts), len(texts)])}
    )


class ViewHistory(RuleBasedStateMachine):
    """`known` remembers the source's rows at every version the view was refreshed to.

    `label` is a column that somebody adds to the view and writes into by hand.
    """

    has_exact_calls = True
    has_labels = True
    # A column of the view that others change by hand; None if they only remove rows.
    edited_column: str | None = None

    @initialize(rows=ROWS)
    def create(self, rows: list[tuple[str, int | None]]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tidemill-history-")
        self.engine = Engine(Path(self._folder.name))
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
        self._known: dict[int, dict[int, SourceRow]] = {}
        self._labels: dict[Any, str] | None = None
        self._past: dict[int, dict[int, SourceRow]] = {}
        # Whether fewer calls than expected may be needed, and whether others may.
        self._may_reuse = False
        self._is_doubtful = False
        # What a worker that died may have left behind as checkpoints.
        self._banked: set[Any] = set()

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.close()
            self._folder.cleanup()

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

    @rule()
    def clean_up_source(self) -> None:
        handle = self.engine.open(self.table)
        handle.cleanup_old_versions(timedelta(0))
        for states in (self._past, self._known):
            for version in [version for version in states if version != handle.version]:
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

    @rule(rows=ROWS, then=THEN)
    def overwrite_source(self, rows: list[tuple[str, int | None]], then: bool) -> None:
        self.rows = {}
        self._settled.clear()
        self._edited.clear()
        self.engine.open(self.table).insert(self.new_rows(rows), mode="overwrite")
        self._follow_up(then)

    @rule()
    def refresh(self) -> None:
        before = self.engine.open(self.view).version
        kept = self.unchanged()
        labels = dict(self._labels or {})
        CALLS.clear()
        result = succeeded(self.engine.refresh(self.view))
        if result["mode"] == "no_op":
            assert self.engine.open(self.view).version == before
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
        before = self.engine.open(self.view).version
        CALLS.clear()
        assert succeeded(self.engine.refresh(self.view))["mode"] == "no_op"
        assert self.engine.open(self.view).version == before
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
            self._past[self.engine.open(self.table).version] = dict(self.rows)

    @invariant()
    def view_shows_the_last_refresh(self) -> None:
        if hasattr(self, "_shown"):
            assert self.found() == self._shown

    @invariant()
    def no_two_rows_have_the_same_id(self) -> None:
        """Indexes, computed columns and views of the view know its rows by their ids."""
        if hasattr(self, "view"):
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

    def check_calls(self, kept: Rows) -> None:
        if not self.has_exact_calls or self._is_doubtful:
            return
        expected = self.expected_calls(kept)
        spared = expected - Counter(CALLS)
        is_exact = Counter(CALLS) <= expected and (self._may_reuse or spared.keys() <= self._banked)
        assert is_exact, f"{CALLS} instead of {expected}"

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

    def _follow_up(self, then: bool) -> None:
        if then:
            self.refresh()

    def _settle(self) -> None:
        self._shown = self.expected(self.rows)
        self._settled = dict(self.rows)
        self._edited.clear()
        self._is_doubtful = False
        self._made.update(self.rows.items())
        if self._labels is not None:
            self._labels = self.found_labels()


class ChunkerHistory(ViewHistory):
    edited_column = "word"
    # Row ids of the source are in the order in which rows were added.
    is_ordered = True

    def create_view(self) -> TableIdent:
        output = pa.schema([pa.field("word", pa.string()), pa.field("size", pa.int64())])
        function = chunker_function(split, output, "text")
        return self.engine.create_view("view", self.table, function, columns={"id": "id"})

    def expected(self, rows: Rows) -> Shown:
        return Counter(
            (row_id, index, word, len(word))
            for row_id, row in rows.items()
            for index, word in enumerate(row.text.split())
        )

    def found(self) -> Shown:
        rows = self.engine.rows(self.view).to_pylist()
        return Counter((row["id"], row["__child_index"], row["word"], row["size"]) for row in rows)

    def expected_calls(self, kept: Rows) -> Counter[Any]:
        """Where the view holds what the function has made of a row's text before, it is not called."""
        made = {(i, row.text) for i, row in self._made}
        calls = {i: row for i, row in self.rows.items() if i not in kept}
        held = {i: Counter({shown: n for shown, n in self._shown.items() if shown[0] == i}) for i in calls}
        return Counter(
            row.text
            for i, row in calls.items()
            if (i, row.text) not in made or held[i] != self.expected({i: row})
        )

    def label_source(self) -> str:
        return "concat(CAST(id AS STRING), '/', CAST(__child_index AS STRING))"

    def label_key(self, row: dict[str, Any]) -> Any:
        return row["id"], row["__child_index"], row["word"]

    def keeps_label(self, key: Any, kept: Rows) -> bool:
        return key[0] in kept

    @rule(limits=st.lists(st.integers(0, 8), min_size=1, max_size=3))
    def cap_and_lift(self, limits: list[int]) -> None:
        """So many rows in the order of the source rows, and all of them afterwards."""
        ordered = sorted(self.expected(self.rows).elements(), key=lambda row: (row[0], row[1]))
        # Results that a limit hides are checkpointed.
        self._may_reuse = True
        for limit in limits:
            succeeded(self.engine.refresh(self.view, output_limit=limit))
            self.no_two_rows_have_the_same_id()
            assert self.found().total() == min(limit, len(ordered))
            assert self.found() <= Counter(ordered)
            if self.is_ordered:
                assert self.found() == Counter(ordered[:limit])
        succeeded(self.engine.refresh(self.view))
        self._settle()


class QueryHistory(ViewHistory):
    """Rows enter and leave the filter as their text grows and shrinks."""

    has_exact_calls = False
    edited_column = "text"

    def create_view(self) -> TableIdent:
        columns = {"id": "id", "text": "text", "size": "character_length(text)"}
        return self.engine.create_view(
            "view", self.table, None, columns=columns, filter="character_length(text) > 2"
        )

    def expected(self, rows: Rows) -> Shown:
        return Counter((i, row.text, len(row.text)) for i, row in rows.items() if len(row.text) > 2)

    def found(self) -> Shown:
        rows = self.engine.rows(self.view).to_pylist()
        return Counter((row["id"], row["text"], row["size"]) for row in rows)


class FunctionColumnHistory(ViewHistory):
    """Two functions and columns beside them: each function is called for what it reads alone."""

    edited_column = "loud"

    def create_view(self) -> TableIdent:
        first = column_function(loud, pa.string(), "text", kind=FunctionKind.SCALAR)
        second = column_function(negated, pa.int64(), "grp", kind=FunctionKind.SCALAR, digest="2")
        query = SourceQuery(self.table.levels, {"id": "id", "grp": "grp", "spare": "spare"})
        columns = (FunctionColumn("loud", 1, first, ("text",)), FunctionColumn("less", 2, second, ("grp",)))
        definition = ViewDefinition(ViewKind.QUERY, query, "{}", None, columns=columns)
        return self.engine.define_view("view", definition)

    def watched(self, row: SourceRow | None) -> Any:
        return row

    def expected_calls(self, kept: Rows) -> Counter[Any]:
        """Neither function reads the spare text; a row that others have touched keeps what is right of it."""
        texts = {i: row.text for i, row in self._settled.items()}
        calls = Counter(row.text for i, row in self.rows.items() if texts.get(i) != row.text)
        groups = {i: ("group", row.group) for i, row in {**self._settled, **self._edited}.items()}
        pairs = {i: ("group", row.group) for i, row in self.rows.items()}
        return calls + Counter(pair for i, pair in pairs.items() if groups.get(i) != pair)

    def unsettle(self, row: dict[str, Any]) -> None:
        """A removed row takes all of its results along, a changed one just the one."""
        before = self._settled.pop(row["id"], None)
        there = {found["id"] for found in self.engine.rows(self.view).to_pylist()}
        if before is not None and row["id"] in there:
            self._edited[row["id"]] = before
        elif row["id"] not in there:
            self._edited.pop(row["id"], None)

    def expected(self, rows: Rows) -> Shown:
        return Counter(
            (i, row.text.upper(), row.group, negative(row.group), row.spare) for i, row in rows.items()
        )

    def found(self) -> Shown:
        rows = self.engine.rows(self.view).to_pylist()
        return Counter((row["id"], row["loud"], row["grp"], row["less"], row["spare"]) for row in rows)


SUMMED = pa.schema([pa.field("what", pa.string()), pa.field("size", pa.int64())])


def summed_rows(rows: Rows) -> Shown:
    texts = sorted(row.text for row in rows.values())
    return Counter([*((text, len(text)) for text in texts), ("all", len(texts))])


class TableFunctionHistory(ViewHistory):
    has_exact_calls = False
    has_labels = False

    def create_view(self) -> TableIdent:
        query = SourceQuery(self.table.levels, None, "grp > 0 OR grp IS NULL")
        function = table_function(summed, SUMMED)
        return self.engine.define_view(
            "view", ViewDefinition(ViewKind.UDTF, query, "{}", None, function, ("text",))
        )

    def expected(self, rows: Rows) -> Shown:
        return summed_rows({i: row for i, row in rows.items() if row.group != 0})

    def found(self) -> Shown:
        return Counter((row["what"], row["size"]) for row in self.engine.rows(self.view).to_pylist())


class PartitionHistory(TableFunctionHistory):
    has_exact_calls = True

    def create_view(self) -> TableIdent:
        query = SourceQuery(self.table.levels, None, "text <> ''")
        function = table_function(summed, SUMMED)
        definition = ViewDefinition(
            ViewKind.UDTF, query, "{}", None, function, ("text", "grp"), partition_by="grp"
        )
        return self.engine.define_view("view", definition)

    def watched(self, row: SourceRow | None) -> Any:
        return row

    def expected(self, rows: Rows) -> Shown:
        shown: Shown = Counter()
        for group in self._groups(rows):
            shown += summed_rows(self._members(rows, group))
        return shown

    def expected_calls(self, kept: Rows) -> Counter[Any]:
        """One for each partition that there is and that has other rows than before."""
        now = {i: row for i, row in self.rows.items() if row.text and i not in kept}
        then = {i: row for i, row in self._settled.items() if row.text and i not in kept}
        touched = self._groups(now) | self._groups(then)
        return Counter(
            len(self._members(self.rows, group))
            for group in self._groups(self.rows)
            if group in touched and self._texts(self.rows, group) != self._texts(self._settled, group)
        )

    def _texts(self, rows: Rows, group: int | None) -> Counter[str]:
        return Counter(row.text for row in self._members(rows, group).values())

    def _groups(self, rows: Rows) -> set[int | None]:
        return {row.group for row in rows.values() if row.text}

    def _members(self, rows: Rows, group: int | None) -> Rows:
        return {i: row for i, row in rows.items() if row.text and row.group == group}


class SqlHistory(ViewHistory):
    has_exact_calls = False
    has_labels = False
    statement = ""

    def create_view(self) -> TableIdent:
        definition = ViewDefinition(
            ViewKind.QUERY, SourceQuery(()), self.statement, None, statement=self.statement
        )
        return self.engine.define_view("view", definition)

    def found(self) -> Shown:
        rows = self.engine.rows(self.view).to_pylist()
        return Counter(tuple(v for k, v in row.items() if not k.startswith("__")) for row in rows)


class AggregateHistory(SqlHistory):
    statement = (
        "SELECT grp, count(*) AS n, sum(length(text)) AS size, min(text) AS first, max(text) AS last, "
        "avg(length(text)) AS mean, count(DISTINCT text) AS texts FROM source WHERE text <> 'a' GROUP BY grp"
    )

    def expected(self, rows: Rows) -> Shown:
        shown: Shown = Counter()
        for group in {row.group for row in rows.values() if row.text != "a"}:
            texts = [row.text for row in rows.values() if row.group == group and row.text != "a"]
            size = sum(map(len, texts))
            shown[group, len(texts), size, min(texts), max(texts), size / len(texts), len(set(texts))] += 1
        return shown


class DistinctHistory(SqlHistory):
    statement = "SELECT DISTINCT text, grp FROM source"

    def expected(self, rows: Rows) -> Shown:
        return Counter({(row.text, row.group) for row in rows.values()})


class OrderedHistory(SqlHistory):
    """Can only be made as a whole."""

    statement = "SELECT id, text, row_number() OVER (ORDER BY id) AS place FROM source"

    def expected(self, rows: Rows) -> Shown:
        return Counter((i, rows[i].text, place + 1) for place, i in enumerate(sorted(rows)))


class JoinHistory(SqlHistory):
    """Two sources: groups have names, which change, too."""

    statement = (
        "SELECT s.id, s.text, n.name FROM source AS s JOIN names AS n ON s.grp = n.grp AND n.name <> 'x'"
    )

    def create_view(self) -> TableIdent:
        self.names: dict[int, str] = {0: "zero", 1: "one"}
        self._version = 0
        self.other = self.engine.create_table("names", pa.table({"grp": [0, 1], "name": ["zero", "one"]}))
        return super().create_view()

    @rule(group=st.integers(0, 3), name=st.sampled_from(["p", "q", "x"]), then=THEN)
    def name_group(self, group: int, name: str, then: bool) -> None:
        """Mostly one that there are rows of."""
        present = sorted({row.group for row in self.rows.values() if row.group is not None})
        group = present[group % len(present)] if present else group
        if group in self.names:
            self.engine.open(self.other).update({"name": f"'{name}'"}, where=f"grp = {group}")
        else:
            self.engine.append(self.other, pa.table({"grp": [group], "name": [name]}))
        self.names[group] = name
        self._follow_up(then)

    @rule(group=st.integers(0, 3), then=THEN)
    def forget_group(self, group: int, then: bool) -> None:
        self.engine.open(self.other).delete(f"grp = {group}")
        self.names.pop(group, None)
        self._follow_up(then)

    def expected(self, rows: Rows) -> Shown:
        return Counter(
            (i, row.text, self._name(row)) for i, row in rows.items() if self._name(row) is not None
        )

    def _name(self, row: SourceRow) -> str | None:
        name = None if row.group is None else self.names.get(row.group)
        return None if name == "x" else name

    def refresh_to_an_older_version_and_back(self, data: Any = None) -> None:
        """A view of several sources has no one version to go back to."""


class LeftJoinHistory(JoinHistory):
    statement = JoinHistory.statement.replace(" JOIN", " LEFT JOIN")

    def expected(self, rows: Rows) -> Shown:
        return Counter((i, row.text, self._name(row)) for i, row in rows.items())


def among(ids: set[int]) -> str:
    return f"id IN ({', '.join(map(str, sorted(ids) or [-1]))})"
