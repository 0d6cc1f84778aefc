"""A refresh calls functions for what changed and for nothing else, and leaves alone what did not."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import tidemill
from tests.e2e.calls import CallLog
from tests.e2e.tables import Maker, filled, refreshed
from tests.e2e.view_kinds import (
    CALLING,
    CHUNKER,
    KINDS,
    NEVER,
    QUERY,
    SQL,
    UDTF,
    Kind,
    named,
    result_of,
    rows_of,
    texts,
    texts_of,
)

TEXTS = texts("a tide", "the mill", "", "ebb and flow", "neap", "spring tide")


class Followed(NamedTuple):
    """A view that is up to date, and calls that are still to come."""

    kind: Kind
    source: tidemill.Table
    view: tidemill.View
    calls: CallLog

    def is_right(self) -> bool:
        return self.kind.is_right(self.view, texts_of(self.source))


@pytest.fixture
def followed(request: pytest.FixtureRequest, make: Maker, calls: CallLog) -> Followed:
    kind: Kind = request.param
    source = make.table(TEXTS[:3], TEXTS[3:])
    view = kind.create(make, source, calls)
    refreshed(view)
    calls.take()
    return Followed(kind, source, view, calls)


every_kind = pytest.mark.parametrize("followed", KINDS, ids=named, indirect=True)
every_calling_kind = pytest.mark.parametrize("followed", CALLING, ids=named, indirect=True)


@every_calling_kind
def test_one_row_that_is_added_is_one_call(followed: Followed) -> None:
    followed.source.add(texts("slack", first=6))
    refreshed(followed.view)
    assert followed.calls.take() == ["north" if followed.kind is UDTF else "slack"]
    assert followed.is_right()


@every_calling_kind
def test_one_row_that_is_updated_is_one_call_and_a_fresh_value(followed: Followed) -> None:
    followed.source.to_lance().update({"text": "'low water'"}, where="id = 3")
    refreshed(followed.view)
    assert followed.calls.take() == ["south" if followed.kind is UDTF else "low water"]
    assert followed.is_right()


@every_calling_kind
def test_a_row_that_is_deleted_is_no_call_but_for_its_partition(followed: Followed) -> None:
    followed.source.to_lance().delete("id = 0")
    refreshed(followed.view)
    assert followed.calls.take() == (["north"] if followed.kind is UDTF else [])
    assert followed.is_right()


def test_a_row_that_moves_to_another_partition_is_a_call_for_each(make: Maker, calls: CallLog) -> None:
    source = make.table(TEXTS, [{"id": 9, "place": "west", "text": "far"}])
    view = UDTF.create(make, source, calls)
    refreshed(view)
    assert calls.take() == ["north", "south", "west"]
    source.to_lance().update({"place": "'south'"}, where="id = 0")
    refreshed(view)
    assert calls.take() == ["north", "south"]
    source.to_lance().update({"place": "'south'"}, where="place = 'west'")
    refreshed(view)
    assert calls.take() == ["south"]
    assert UDTF.is_right(view, texts_of(source))


@pytest.mark.parametrize("followed", [SQL], ids=named, indirect=True)
def test_one_row_that_changes_writes_the_row_of_its_group_alone(followed: Followed) -> None:
    followed.source.add(texts("slack", first=6))
    assert result_of(followed.view)["rows_written"] == 1
    followed.source.to_lance().update({"text": "'low water'"}, where="id = 3")
    result = result_of(followed.view)
    assert (result["mode"], result["keys"], result["rows_written"]) == ("incremental", 1, 1)
    assert followed.is_right()


@every_kind
def test_compaction_of_the_source_is_no_call_and_no_version(followed: Followed) -> None:
    version = followed.view.version
    followed.source.to_lance().optimize.compact_files()
    assert result_of(followed.view)["mode"] == "no_op"
    assert (followed.view.version, followed.calls.take()) == (version, [])


@every_kind
def test_compaction_of_the_view_is_no_call_and_no_version_of_ours(followed: Followed) -> None:
    followed.source.add(texts("slack", first=6))
    refreshed(followed.view)
    followed.calls.take()
    followed.view.to_lance().optimize.compact_files()
    version = followed.view.version
    assert result_of(followed.view)["mode"] == "no_op"
    assert (followed.view.version, followed.calls.take()) == (version, [])
    assert followed.is_right()


@every_kind
def test_nothing_to_do_is_no_call_and_no_version(followed: Followed) -> None:
    version = followed.view.version
    for _ in range(2):
        assert result_of(followed.view)["mode"] == "no_op"
    assert (followed.view.version, followed.calls.take()) == (version, [])


@every_kind
def test_an_index_on_the_source_is_no_call_and_no_version(followed: Followed) -> None:
    version = followed.view.version
    followed.source.to_lance().create_scalar_index("text", "BTREE")
    assert result_of(followed.view)["mode"] == "no_op"
    assert (followed.view.version, followed.calls.take()) == (version, [])


@every_kind
def test_a_write_that_changes_nothing_is_no_version(followed: Followed) -> None:
    version = followed.view.version
    followed.source.to_lance().update({"text": "text"}, where="id = 3")
    refreshed(followed.view)
    assert followed.view.version == version
    assert followed.is_right()


@pytest.mark.parametrize("followed", [CHUNKER], ids=named, indirect=True)
def test_a_row_that_yields_nothing_is_never_called_again(followed: Followed) -> None:
    for number in (6, 7):
        followed.source.add(texts("", first=number))
        refreshed(followed.view)
        assert followed.calls.take() == [""]
    assert result_of(followed.view)["mode"] == "no_op"
    assert followed.calls.take() == []


def test_a_partition_that_yields_nothing_is_never_called_again(make: Maker, calls: CallLog) -> None:
    source = make.table(TEXTS, [{"id": 9, "place": NEVER, "text": "still"}])
    view = UDTF.create(make, source, calls)
    refreshed(view)
    assert calls.take() == [NEVER, "north", "south"]
    source.add(texts("slack", first=6))
    refreshed(view)
    assert calls.take() == ["north"]
    assert UDTF.is_right(view, texts_of(source))


@every_kind
def test_a_column_added_to_the_source_is_no_call_and_harms_nothing(followed: Followed) -> None:
    version = followed.view.version
    followed.source.to_lance().add_columns({"size": "length(text)"})
    assert result_of(followed.view)["mode"] == "no_op"
    assert (followed.view.version, followed.calls.take()) == (version, [])
    followed.source.to_lance().update({"text": "'low water'"}, where="id = 3")
    refreshed(followed.view)
    assert followed.calls.count() == (0 if followed.kind is SQL else 1)
    assert followed.is_right()


def key_of(row: dict[str, Any]) -> Any:
    """What a row of any of the views is known by."""
    return row.get("place") or (row["id"], row.get("word"))


def notes_of(view: tidemill.View) -> dict[Any, str | None]:
    return {key_of(row): row["note"] for row in view.query(columns=view.schema.names).to_pylist()}


NEW: dict[str, Any] = {"query": (8, None), "chunker": (8, "slack"), "udtf": "west", "sql": "west"}
# What a chunker or a table function yields for a row or place that changed may be something else altogether.
REPLACED: dict[str, list[Any]] = {
    "query": [],
    "chunker": [(3, word) for word in ("ebb", "and", "flow")],
    "udtf": ["south"],
    "sql": [],
}


@every_kind
def test_what_a_user_writes_into_a_column_of_the_view_survives(followed: Followed) -> None:
    view = followed.view
    view.to_lance().add_columns(pa.field("note", pa.string()))
    view.to_lance().update({"note": f"concat('note of ', {followed.kind.columns[0]})"})
    before = notes_of(view)
    followed.source.to_lance().update({"text": "'low water'"}, where="id = 3")
    followed.source.to_lance().delete("id = 1")
    followed.source.add([{"id": 8, "place": "west", "text": "slack"}])
    refreshed(view)
    after = notes_of(view)
    assert followed.is_right()
    kept = {key for key in before if key in after and key not in REPLACED[followed.kind.name]}
    assert kept
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    assert [after[key] for key in after.keys() - before.keys() if NEW[followed.kind.name] == key] == [None]


@pytest.mark.parametrize("followed", [QUERY, CHUNKER], ids=named, indirect=True)
def test_a_computed_column_of_a_view_is_computed_for_the_new_row_alone(followed: Followed) -> None:
    source, view, calls = followed.source, followed.view, followed.calls
    column = "loud" if followed.kind is QUERY else "word"

    @tidemill.udf(inputs=[column])
    def size(value: str) -> int:
        calls.note(value)
        return len(value)

    view.add_column("size", size)
    filled(view, "size")
    calls.take()
    source.add(texts("slack", first=6))
    refreshed(view)
    calls.take()
    filled(view, "size")
    assert [call.lower() for call in calls.take()] == ["slack"]
    assert all(size == len(value) for value, size in rows_of(view, column, "size"))


@pytest.mark.parametrize("followed", [UDTF, SQL], ids=named, indirect=True)
def test_a_computed_column_of_groups_is_computed_for_the_changed_group_alone(followed: Followed) -> None:
    view, calls = followed.view, followed.calls

    @tidemill.udf
    def mean(texts: int, letters: int) -> float:
        calls.note(texts)
        return letters / texts

    view.add_column("mean", mean)
    filled(view, "mean")
    followed.source.add(texts("slack", first=6))
    refreshed(view)
    calls.take()
    filled(view, "mean")
    assert calls.take() == ["4"]
    assert all(mean == letters / count for count, letters, mean in rows_of(view, "texts", "letters", "mean"))
