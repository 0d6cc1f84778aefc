"""The kinds of views whose random lives are followed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.engine import chunker_function, column_function, succeeded, table_function
from tests.histories.view_machine import (
    CALLS,
    PICK,
    THEN,
    Rows,
    Shown,
    SourceRow,
    ViewHistory,
    among,
    note_call,
)
from tidemill.catalog.model.functions import FunctionKind
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.views import SourceQuery, ViewKind
from tidemill.jobs.service.views import FunctionColumn, ViewDefinition


def split(text: str) -> Iterator[tuple[str, int]]:
    """Nothing for blank texts: rows that yield nothing are done, too."""
    note_call(text)
    for word in text.split():
        yield word, len(word)


def places(text: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
    words, start = text.split(), 0
    for number, word in enumerate(words):
        yield word, start, {"line": start // 3, "share": number / len(words)}
        start += len(word) + 1


def placed_words(text: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
    note_call(text)
    yield from places(text)


EMBEDDED: list[str] = []


def embedding_of(word: str) -> str:
    return f"<{word}>"


def embedded(word: str) -> str:
    EMBEDDED.append(word)
    return embedding_of(word)


WordEdit = Callable[[list[str]], list[str]]
WORD_EDITS: list[WordEdit] = [
    lambda words: ["b", *words],
    lambda words: [*words[:1], "a", *words[1:]],
    lambda words: words[1:],
    lambda words: [*words[1:], *words[:1]],
    lambda words: words[::-1],
    lambda words: ["".join(words[:2]), *words[2:]],
    lambda words: [letter for word in words for letter in word],
]


def loud(text: str) -> str:
    note_call(text)
    return text.upper()


def negative(group: int | None) -> int | None:
    return None if group is None else -group


def negated(group: int | None) -> int | None:
    note_call(("group", group))
    return negative(group)


def summed(source: Any) -> Iterator[pa.RecordBatch]:
    """A row for each row of the source and one for all of them."""
    rows = source.to_arrow().to_pylist()
    note_call(len(rows))
    texts = sorted(row["text"] for row in rows)
    yield pa.record_batch(
        {"what": pa.array([*texts, "all"]), "size": pa.array([*map(len, texts), len(texts)])}
    )


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


class PositionedChunkerHistory(ChunkerHistory):
    """Chunks carry where they are, so an edit changes all that follow; a column is computed from texts."""

    def create_view(self) -> TableIdent:
        output = pa.schema(
            [
                pa.field("word", pa.string()),
                pa.field("start", pa.int64()),
                pa.field("place", pa.struct([pa.field("line", pa.int64()), pa.field("share", pa.float64())])),
            ]
        )
        function = chunker_function(placed_words, output, "text")
        view = self.engine.create_view("view", self.table, function, columns={"id": "id"})
        embedding = column_function(embedded, pa.string(), "word", kind=FunctionKind.SCALAR)
        self.engine.declare(view, "embedding", embedding, "word")
        return view

    def expected(self, rows: Rows) -> Shown:
        return Counter(
            (row_id, index, word, start, place["line"], place["share"])
            for row_id, row in rows.items()
            for index, (word, start, place) in enumerate(places(row.text))
        )

    def found(self) -> Shown:
        rows = self.engine.rows(self.view).to_pylist()
        return Counter(
            (row["id"], row["__child_index"], row["word"], row["start"], *row["place"].values())
            for row in rows
        )

    def label_key(self, row: dict[str, Any]) -> Any:
        return row["id"], row["word"], row["label"]

    def check_labels(self, before: dict[Any, str], kept: Rows) -> None:
        """A chunk that is still there keeps what was written beside it, wherever it is by now."""
        if self._labels is None:
            return
        now = self.found_labels()
        texts = Counter((row["id"], row["word"]) for row in self.engine.rows(self.view).to_pylist())
        had = Counter(key[:2] for key, label in before.items() if label is not None)
        still = Counter(key[:2] for key in before.keys() & now.keys() if key[2] is not None)
        assert still == had & texts
        self._labels = now

    @rule(pick=PICK, edit=st.sampled_from(WORD_EDITS), then=THEN)
    def edit_words(self, pick: int, edit: WordEdit, then: bool) -> None:
        for row_id in sorted(self.picked(pick)):
            text = " ".join(edit(self.rows[row_id].text.split()))
            self.engine.open(self.table).update({"text": f"'{text}'"}, where=among({row_id}))
            self.rows[row_id] = replace(self.rows[row_id], text=text)
        self._follow_up(then)

    @rule()
    def fill_the_computed_column(self) -> None:
        """It is called for the chunks that do not have the right value yet."""
        self.refresh()
        before = self.engine.rows(self.view).to_pylist()
        EMBEDDED.clear()
        succeeded(self.engine.backfill(self.view, "embedding"))
        wrong = [row["word"] for row in before if row["embedding"] != embedding_of(row["word"])]
        assert Counter(EMBEDDED) == Counter(wrong)
        assert all(
            row["embedding"] == embedding_of(row["word"]) for row in self.engine.rows(self.view).to_pylist()
        )

    @rule(pick=PICK, edit=st.sampled_from(WORD_EDITS))
    def edit_words_of_a_filled_view(self, pick: int, edit: WordEdit) -> None:
        """A moved chunk is no new one: the column is computed for as many as there are more of a text."""
        self.fill_the_computed_column()
        before = Counter((row["id"], row["word"]) for row in self.engine.rows(self.view).to_pylist())
        self.edit_words(pick=pick, edit=edit, then=False)
        self.fill_the_computed_column()
        now = Counter((row["id"], row["word"]) for row in self.engine.rows(self.view).to_pylist())
        assert Counter(EMBEDDED) == Counter(word for _, word in (now - before).elements())


class QueryHistory(ViewHistory):
    """Rows enter and leave the filter as their text grows and shrinks."""

    calls_functions = False
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

    def results_of_gone_rows(self) -> set[Any]:
        kept = {**self._settled, **self._edited}
        groups = {("group", row.group) for row_id, row in kept.items() if row_id not in self.rows}
        return super().results_of_gone_rows() | groups

    def inputs_of(self, rows: Rows, ids: set[int]) -> Counter[Any]:
        return super().inputs_of(rows, ids) + Counter(("group", rows[i].group) for i in ids if i in rows)

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

    def results_of_gone_rows(self) -> set[Any]:
        """The same rows in another partition are given to the function there."""
        return set()

    def inputs_of(self, rows: Rows, ids: set[int]) -> Counter[Any]:
        """The partitions that the rows are in."""
        groups = self._groups({i: rows[i] for i in ids if i in rows})
        return Counter(len(self._members(rows, group)) for group in groups)

    def most_unsaved(self, rows: int | None) -> int:
        """A partition has a checkpoint of its own."""
        return len(CALLS) if rows is None else 1

    def _texts(self, rows: Rows, group: int | None) -> Counter[str]:
        return Counter(row.text for row in self._members(rows, group).values())

    def _groups(self, rows: Rows) -> set[int | None]:
        return {row.group for row in rows.values() if row.text}

    def _members(self, rows: Rows, group: int | None) -> Rows:
        return {i: row for i, row in rows.items() if row.text and row.group == group}


class SqlHistory(ViewHistory):
    calls_functions = False
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
