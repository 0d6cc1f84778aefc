"""Random lives of a source: after every refresh the view equals what a full recomputation makes."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.engine import Engine, Moment, chunker_function, succeeded
from tests.histories.settings import history_settings
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.jobs import RefreshRequest

TEXTS = st.lists(st.text("ab ", max_size=6), min_size=1, max_size=5)
PICK = st.integers(0, 3)


def split(text: str) -> Iterator[tuple[str, int]]:
    """Nothing for blank texts: rows that yield nothing are done, too."""
    for word in text.split():
        yield word, len(word)


class ViewHistory(RuleBasedStateMachine):
    """`known` remembers the source's rows at every version the view was refreshed to."""

    @initialize(texts=TEXTS)
    def create(self, texts: list[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tidemill-history-")
        self._engine = Engine(Path(self._folder.name))
        self._next_id = 0
        self._texts: dict[int, str] = {}
        self._changed: set[int] = set()
        # May be computed again, and need not be.
        self._moved: set[int] = set()
        self._table = self._create_table(self._new_rows(texts))
        self._view = self._create_view()
        self._shown: Counter[tuple[Any, ...]] = Counter()
        self._known: dict[int, dict[int, str]] = {}

    def teardown(self) -> None:
        if hasattr(self, "_engine"):
            self._engine.close()
            self._folder.cleanup()

    @rule(texts=TEXTS)
    def append(self, texts: list[str]) -> None:
        self._engine.append(self._table, self._new_rows(texts))

    @rule(pick=PICK, text=st.text("ab ", max_size=6))
    def update(self, pick: int, text: str) -> None:
        ids = self._picked(pick)
        self._engine.open(self._table).update({"text": f"'{text}'"}, where=_among(ids))
        self._texts.update(dict.fromkeys(ids, text))
        self._changed |= ids

    @rule(pick=PICK)
    def delete(self, pick: int) -> None:
        ids = self._picked(pick)
        self._engine.open(self._table).delete(_among(ids))
        for row_id in ids:
            del self._texts[row_id]
        self._changed -= ids
        self._moved -= ids

    @rule()
    def compact_source(self) -> None:
        self._engine.open(self._table).optimize.compact_files(target_rows_per_fragment=64)

    @rule()
    def compact_view(self) -> None:
        self._engine.open(self._view).optimize.compact_files(target_rows_per_fragment=64)

    @rule()
    def add_column_to_view(self) -> None:
        handle = self._engine.open(self._view)
        handle.add_columns(pa.field(f"extra{handle.version}", pa.int32()))

    @rule(texts=TEXTS)
    def overwrite_source(self, texts: list[str]) -> None:
        self._texts.clear()
        self._changed.clear()
        self._moved.clear()
        rows = self._new_rows(texts)
        self._engine.open(self._table).insert(rows, mode="overwrite")

    @rule()
    def refresh(self) -> None:
        before = self._engine.open(self._view).version
        result = succeeded(self._engine.refresh(self._view))
        assert len(self._changed) <= result["rows_computed"] <= len(self._changed | self._moved)
        if result["mode"] == "no_op":
            assert self._engine.open(self._view).version == before
        self._changed.clear()
        self._moved.clear()
        self._shown = self._expected(self._texts)
        self._known[result["source_version"]] = dict(self._texts)

    @rule()
    def refresh_again_does_nothing(self) -> None:
        self.refresh()
        before = self._engine.open(self._view).version
        assert succeeded(self._engine.refresh(self._view))["mode"] == "no_op"
        assert self._engine.open(self._view).version == before

    @rule(data=st.data())
    def refresh_to_an_older_version_and_back(self, data: st.DataObject) -> None:
        if not self._known:
            return
        version = data.draw(st.sampled_from(sorted(self._known)))
        succeeded(self._engine.refresh(self._view, source_version=version))
        assert self._found() == self._expected(self._known[version])
        succeeded(self._engine.refresh(self._view))
        self._changed.clear()
        self._moved.clear()
        self._shown = self._expected(self._texts)

    @rule(moment=st.sampled_from(Moment))
    def crash_and_take_over(self, moment: Moment) -> None:
        job = self._engine.operations.jobs.submit_refresh(LOCAL_CALLER, self._view, RefreshRequest(), None)
        succeeded(self._engine.crash_and_take_over(job, moment))
        self._changed.clear()
        self._moved.clear()
        self._shown = self._expected(self._texts)

    @rule()
    def full_refresh(self) -> None:
        assert succeeded(self._engine.refresh(self._view, is_full=True))["mode"] == "full"
        self._changed.clear()
        self._moved.clear()
        self._shown = self._expected(self._texts)

    @invariant()
    def view_shows_the_last_refresh(self) -> None:
        assert self._found() == self._shown

    def _create_table(self, rows: pa.Table) -> TableIdent:
        return self._engine.create_table("source", rows)

    def _create_view(self) -> TableIdent:
        raise AssertionError("made by each kind")

    def _expected(self, texts: dict[int, str]) -> Counter[tuple[Any, ...]]:
        raise AssertionError("made by each kind")

    def _found(self) -> Counter[tuple[Any, ...]]:
        raise AssertionError("made by each kind")

    def _new_rows(self, texts: list[str]) -> pa.Table:
        ids = list(range(self._next_id, self._next_id + len(texts)))
        self._next_id += len(texts)
        self._texts.update(zip(ids, texts, strict=True))
        self._changed.update(ids)
        return pa.table({"id": ids, "text": texts})

    def _picked(self, pick: int) -> set[int]:
        return {row_id for row_id in self._texts if row_id % 4 == pick}


class ChunkerHistory(ViewHistory):
    def _create_view(self) -> TableIdent:
        output = pa.schema([pa.field("word", pa.string()), pa.field("size", pa.int64())])
        function = chunker_function(split, output, "text")
        return self._engine.create_view("view", self._table, function, columns={"id": "id"})

    def _expected(self, texts: dict[int, str]) -> Counter[tuple[Any, ...]]:
        return Counter(
            (row_id, index, word, size)
            for row_id, text in texts.items()
            for index, (word, size) in enumerate(split(text))
        )

    def _found(self) -> Counter[tuple[Any, ...]]:
        rows = self._engine.rows(self._view).to_pylist()
        return Counter((row["id"], row["__child_index"], row["word"], row["size"]) for row in rows)


class QueryHistory(ViewHistory):
    """Rows enter and leave the filter as their text grows and shrinks."""

    def _create_view(self) -> TableIdent:
        columns = {"id": "id", "text": "text", "size": "character_length(text)"}
        return self._engine.create_view(
            "view", self._table, None, columns=columns, filter="character_length(text) > 2"
        )

    def _expected(self, texts: dict[int, str]) -> Counter[tuple[Any, ...]]:
        return Counter((row_id, text, len(text)) for row_id, text in texts.items() if len(text) > 2)

    def _found(self) -> Counter[tuple[Any, ...]]:
        rows = self._engine.rows(self._view).to_pylist()
        return Counter((row["id"], row["text"], row["size"]) for row in rows)


def _among(ids: set[int]) -> str:
    return f"id IN ({', '.join(map(str, sorted(ids) or [-1]))})"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("share", range(3))
@pytest.mark.parametrize("machine", [ChunkerHistory, QueryHistory])
def test_random_histories(machine: type[ViewHistory], share: int) -> None:
    run_state_machine_as_test(machine, settings=history_settings(10, 12))
