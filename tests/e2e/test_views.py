"""Materialized views follow their source row by row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import tidemill
from tests.e2e.calls import CallLog
from tests.e2e.tables import Maker, numbered, refreshed
from tidemill.sdk.errors import InvalidRequest, NotFound


class Word(NamedTuple):
    position: int
    word: str


def splitter(calls: CallLog) -> Any:
    """Makes a row of every word, and notes the texts it is called with."""

    @tidemill.chunker
    def words(text: str) -> Iterator[Word]:
        calls.note(text)
        for position, word in enumerate(text.split()):
            yield Word(position, word)

    return words


def pages(*texts: str, first: int = 0) -> list[dict[str, Any]]:
    return [{"id": first + index, "text": text} for index, text in enumerate(texts)]


def words_of(view: tidemill.View) -> list[str]:
    rows = view.query(columns=["__source_row_id", "__child_index", "word"]).to_pylist()
    return [
        row["word"] for row in sorted(rows, key=lambda row: (row["__source_row_id"], row["__child_index"]))
    ]


def ids_of(view: tidemill.View) -> list[int]:
    return sorted(view.query(columns=["id"])["id"].to_pylist())


def counts(job: tidemill.Job) -> tuple[int, int, int, int]:
    done = job.progress
    return done.computed, done.reused, done.replaced, done.removed


class Chunked(NamedTuple):
    source: tidemill.Table
    view: tidemill.View


@pytest.fixture
def chunked(make: Maker, calls: CallLog) -> Chunked:
    """Four texts, one of them without words, and their words as a view."""
    source = make.table(pages("a tide", "mill"), pages("", "ebb and flow", first=2))
    view = make.view(source.chunk(splitter(calls)))
    refreshed(view)
    return Chunked(source, view)


class Filtered(NamedTuple):
    source: tidemill.Table
    view: tidemill.View


@pytest.fixture
def filtered(make: Maker) -> Filtered:
    """Six numbered texts, of which a view has those with even ids, in capitals."""
    source = make.numbered(3, 3)
    view = make.view(source.select("id", loud="upper(text)").where("id % 2 = 0"))
    refreshed(view)
    return Filtered(source, view)


def test_a_chunker_makes_any_number_of_rows_from_one(chunked: Chunked, calls: CallLog) -> None:
    assert words_of(chunked.view) == ["a", "tide", "mill", "ebb", "and", "flow"]
    assert calls.take() == ["", "a tide", "ebb and flow", "mill"]


def test_the_children_of_a_row_are_numbered(chunked: Chunked) -> None:
    rows = chunked.view.query(columns=["__child_index", "position"]).to_pylist()
    assert [row["__child_index"] for row in rows] == [row["position"] for row in rows]


def test_a_refresh_without_changes_adds_no_version_and_calls_nothing(
    chunked: Chunked, calls: CallLog
) -> None:
    calls.take()
    version = chunked.view.version
    job = refreshed(chunked.view)
    assert chunked.view.version == version
    assert calls.count() == 0
    assert job.result is not None
    assert job.result["mode"] == "no_op"
    assert counts(job) == (0, 4, 0, 0)


def test_inserted_rows_are_chunked_and_only_those(chunked: Chunked, calls: CallLog) -> None:
    calls.take()
    chunked.source.add(pages("spring neap", first=4))
    job = refreshed(chunked.view)
    assert calls.take() == ["spring neap"]
    assert words_of(chunked.view) == ["a", "tide", "mill", "ebb", "and", "flow", "spring", "neap"]
    assert counts(job) == (1, 4, 0, 0)


def test_an_updated_row_has_its_children_replaced(chunked: Chunked, calls: CallLog) -> None:
    calls.take()
    chunked.source.to_lance().update({"text": "'low'"}, where="id = 3")
    job = refreshed(chunked.view)
    assert calls.take() == ["low"]
    assert words_of(chunked.view) == ["a", "tide", "mill", "low"]
    assert counts(job) == (1, 3, 1, 0)


def test_a_deleted_row_takes_its_children_along(chunked: Chunked, calls: CallLog) -> None:
    calls.take()
    chunked.source.to_lance().delete("id = 0")
    job = refreshed(chunked.view)
    assert calls.count() == 0
    assert words_of(chunked.view) == ["mill", "ebb", "and", "flow"]
    assert counts(job) == (0, 3, 0, 1)


def test_a_row_that_yields_nothing_is_not_evaluated_again(chunked: Chunked, calls: CallLog) -> None:
    calls.take()
    chunked.source.add(pages("new", first=4))
    refreshed(chunked.view)
    assert calls.take() == ["new"]


def test_a_row_that_yielded_nothing_is_evaluated_when_it_changes(chunked: Chunked, calls: CallLog) -> None:
    calls.take()
    chunked.source.to_lance().update({"text": "'slack'"}, where="id = 2")
    refreshed(chunked.view)
    assert calls.take() == ["slack"]
    assert "slack" in words_of(chunked.view)


def test_compaction_of_the_source_changes_nothing(chunked: Chunked, calls: CallLog) -> None:
    calls.take()
    version = chunked.view.version
    chunked.source.to_lance().optimize.compact_files()
    refreshed(chunked.view)
    assert calls.count() == 0
    assert chunked.view.version == version


def test_compaction_of_the_view_harms_nothing(chunked: Chunked) -> None:
    chunked.source.add(pages("spring", first=4))
    refreshed(chunked.view)
    chunked.view.to_lance().optimize.compact_files()
    chunked.source.to_lance().update({"text": "'low'"}, where="id = 0")
    refreshed(chunked.view)
    assert words_of(chunked.view) == ["low", "mill", "ebb", "and", "flow", "spring"]


def test_what_explain_says_is_what_is_done(chunked: Chunked) -> None:
    chunked.source.to_lance().update({"text": "'low'"}, where="id = 3")
    chunked.source.to_lance().delete("id = 0")
    chunked.source.add(pages("new", "newer", first=4))
    said = chunked.view.explain()
    job = refreshed(chunked.view)
    assert job.result is not None
    assert (said.rows, said.rows_reused, said.rows_replaced, said.rows_removed) == counts(job) == (3, 2, 1, 1)
    assert (said.mode, said.source_version) == (job.result["mode"], job.result["source_version"])


def test_a_full_refresh_computes_every_row_again(chunked: Chunked, calls: CallLog) -> None:
    calls.take()
    before = words_of(chunked.view)
    job = refreshed(chunked.view, full=True)
    assert calls.count() == 4
    assert words_of(chunked.view) == before
    assert job.result is not None
    assert job.result["mode"] == "full"


def test_a_view_can_go_back_to_an_older_source_version(chunked: Chunked) -> None:
    old = chunked.source.version
    chunked.source.to_lance().update({"text": "'low'"}, where="id = 3")
    chunked.source.to_lance().delete("id = 0")
    chunked.source.add(pages("new", first=4))
    refreshed(chunked.view)
    assert words_of(chunked.view) == ["mill", "low", "new"]
    refreshed(chunked.view, src_version=old)
    assert words_of(chunked.view) == ["a", "tide", "mill", "ebb", "and", "flow"]
    refreshed(chunked.view)
    assert words_of(chunked.view) == ["mill", "low", "new"]


def test_a_source_version_that_is_not_there_is_refused(chunked: Chunked) -> None:
    with pytest.raises(InvalidRequest, match="no version 999"):
        chunked.view.refresh(src_version=999)


def test_a_chunker_view_carries_the_columns_of_its_source(make: Maker, calls: CallLog) -> None:
    source = make.table(pages("a tide", "mill"))
    view = make.view(source.select("id", size="length(text)").chunk(splitter(calls)))
    refreshed(view)
    rows = view.query(columns=["id", "size", "word"]).to_pylist()
    assert sorted(rows, key=lambda row: str(row["word"])) == [
        {"id": 0, "size": 6, "word": "a"},
        {"id": 1, "size": 4, "word": "mill"},
        {"id": 0, "size": 6, "word": "tide"},
    ]


def test_a_chunker_view_of_some_rows_has_only_their_children(make: Maker, calls: CallLog) -> None:
    source = make.table(pages("a tide", "mill", "ebb"))
    view = make.view(source.where("id <> 1").chunk(splitter(calls)))
    refreshed(view)
    assert words_of(view) == ["a", "tide", "ebb"]
    assert calls.take() == ["a tide", "ebb"]


def test_a_query_view_has_the_rows_and_expressions_of_its_definition(filtered: Filtered) -> None:
    rows = filtered.view.query(columns=["id", "loud"]).to_pylist()
    assert sorted(rows, key=lambda row: int(row["id"])) == [
        {"id": 0, "loud": "TEXT 0"},
        {"id": 2, "loud": "TEXT 2"},
        {"id": 4, "loud": "TEXT 4"},
    ]


def test_a_view_without_a_selection_has_all_columns(make: Maker) -> None:
    view = make.view(make.numbered(3).where("id > 0"))
    refreshed(view)
    assert view.query(columns=["id", "text"]).to_pylist() == numbered(1, 2)


def test_rows_that_enter_the_filter_come_and_those_that_leave_it_go(filtered: Filtered) -> None:
    filtered.source.to_lance().update({"id": "id + 1"}, where="id IN (1, 4)")
    refreshed(filtered.view)
    assert ids_of(filtered.view) == [0, 2, 2]


def test_inserts_and_deletes_reach_a_query_view(filtered: Filtered) -> None:
    filtered.source.add(numbered(6, 2))
    filtered.source.to_lance().delete("id IN (1, 2)")
    refreshed(filtered.view)
    assert ids_of(filtered.view) == [0, 4, 6]


def test_an_update_inside_the_filter_replaces_the_row(filtered: Filtered) -> None:
    filtered.source.to_lance().update({"text": "'changed'"}, where="id = 2")
    job = refreshed(filtered.view)
    assert filtered.view.query(filter="id = 2", columns=["loud"]).to_pylist() == [{"loud": "CHANGED"}]
    assert job.progress.computed == 1


def test_a_query_view_without_changes_adds_no_version(filtered: Filtered) -> None:
    version = filtered.view.version
    assert refreshed(filtered.view).progress.commits == 0
    assert filtered.view.version == version


def test_a_change_of_a_column_the_view_does_not_read_adds_no_version(make: Maker) -> None:
    @tidemill.udf
    def size(text: str) -> int:
        return len(text)

    source = make.numbered(3)
    view = make.view(source.select("id"))
    refreshed(view)
    version = view.version
    source.add_column("size", size)
    source.backfill("size").wait(120)
    assert refreshed(view).progress.computed == 0
    assert view.version == version


def test_columns_a_user_adds_to_a_view_survive_its_refresh(filtered: Filtered, calls: CallLog) -> None:
    @tidemill.udf
    def quiet(loud: str) -> str:
        calls.note(loud)
        return loud.lower()

    view = filtered.view
    view.add_column("quiet", quiet)
    view.backfill("quiet").wait(120)
    calls.take()
    filtered.source.to_lance().delete("id = 0")
    filtered.source.add(numbered(6, 1))
    refreshed(view)
    rows = view.query(columns=["id", "quiet"]).to_pylist()
    assert {row["id"]: row["quiet"] for row in rows} == {2: "text 2", 4: "text 4", 6: None}
    view.backfill("quiet").wait(120)
    assert calls.take() == ["TEXT 6"]


def test_a_view_can_be_made_from_a_view(make: Maker, calls: CallLog) -> None:
    source = make.table(pages("a tide", "mill wheel"))
    words = make.view(source.chunk(splitter(calls)), name="words")
    long = make.view(words.select("word").where("length(word) > 1"), name="long")
    refreshed(words)
    refreshed(long)
    assert sorted(long.query(columns=["word"])["word"].to_pylist()) == ["mill", "tide", "wheel"]
    source.to_lance().update({"text": "'race'"}, where="id = 1")
    refreshed(words)
    refreshed(long)
    assert sorted(long.query(columns=["word"])["word"].to_pylist()) == ["race", "tide"]


def test_a_view_created_with_data_is_refreshed_at_once(make: Maker) -> None:
    source = make.numbered(3)
    name = f"{make.namespace}.filled"
    view = make.lake.create_materialized_view(name, source.select("id"), with_no_data=False)
    assert view.first_refresh is not None
    view.first_refresh.wait(120)
    assert view.count_rows() == 3


def test_a_view_whose_source_was_dropped_says_so(chunked: Chunked, make: Maker) -> None:
    make.lake.drop_table(chunked.source.name, force=True)
    with pytest.raises(tidemill.TidemillRequestError, match="dropped"):
        chunked.view.refresh()
    assert words_of(chunked.view) == ["a", "tide", "mill", "ebb", "and", "flow"]


def test_a_view_on_a_table_that_is_not_there_is_refused(make: Maker) -> None:
    missing = make.lake.table(f"{make.namespace}.missing")
    with pytest.raises(NotFound):
        make.view(missing.where("id = 1"))


def test_a_view_is_refreshed_after_its_source_was_overwritten(make: Maker, calls: CallLog) -> None:
    source = make.table(pages("a tide", "mill"))
    view = make.view(source.chunk(splitter(calls)))
    refreshed(view)
    make.lake.create_table(source.name, pages("ebb", "flow"), mode="overwrite")
    refreshed(view)
    assert sorted(words_of(view)) == ["ebb", "flow"]
