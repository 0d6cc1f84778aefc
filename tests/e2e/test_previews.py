"""Previews compute a few rows to look at; nothing is published, and nothing is computed twice."""

from __future__ import annotations

from typing import Any

import pytest

import tidemill
from tests.e2e.calls import CallLog
from tests.e2e.tables import TIMEOUT, Maker, by_id, filled, row_ids
from tidemill.sdk.errors import InvalidRequest


@pytest.fixture
def docs(make: Maker, calls: CallLog) -> tidemill.Table:
    """Eight rows, on the third of which the function raises."""

    @tidemill.udf
    def size(id: int, text: str) -> int:
        calls.note(id)
        if id == 2:
            raise ValueError("two has no size")
        return len(text)

    table = make.numbered(4, 4)
    table.add_column("size", size)
    return table


def shown(preview: tidemill.Preview) -> list[dict[str, Any]]:
    return list(preview.to_arrow().to_pylist())


def test_a_preview_shows_inputs_and_values(docs: tidemill.Table) -> None:
    ids = row_ids(docs)
    assert shown(docs.preview("size", rows=2, timeout=TIMEOUT)) == [
        {"_rowid": ids[0], "id": 0, "text": "text 0", "size": 6},
        {"_rowid": ids[1], "id": 1, "text": "text 1", "size": 6},
    ]


def test_a_preview_shows_what_a_function_raised_and_goes_on(docs: tidemill.Table) -> None:
    preview = docs.preview("size", rows=4, timeout=TIMEOUT)
    [error] = preview.errors
    assert (error.row_id, error.exception) == (row_ids(docs)[2], "ValueError")
    assert "two has no size" in error.message
    assert "in size" in error.traceback
    assert [row["size"] for row in shown(preview)] == [6, 6, None, 6]


def test_a_preview_tells_how_fast_the_function_is(docs: tidemill.Table) -> None:
    preview = docs.preview("size", rows=2, timeout=TIMEOUT)
    assert preview.rows_per_second is not None
    assert preview.rows_per_second > 0


def test_a_preview_takes_the_rows_it_is_asked_for(docs: tidemill.Table, calls: CallLog) -> None:
    preview = docs.preview("size", where="id > 5", timeout=TIMEOUT)
    assert [row["id"] for row in shown(preview)] == [6, 7]
    assert calls.take() == ["6", "7"]


def test_a_preview_publishes_nothing(docs: tidemill.Table) -> None:
    version = docs.version
    docs.preview("size", rows=4, timeout=TIMEOUT)
    assert docs.version == version
    assert set(by_id(docs, "size").values()) == {None}
    assert docs.column_status("size").missing == 8
    assert docs.errors("size") == []


def test_a_backfill_does_not_call_the_function_for_rows_that_were_previewed(
    docs: tidemill.Table, calls: CallLog
) -> None:
    docs.preview("size", rows=2, timeout=TIMEOUT)
    calls.take()
    job = filled(docs, "size", on_error="skip")
    assert calls.take() == ["2", "3", "4", "5", "6", "7"]
    assert job.progress.computed == 6
    assert by_id(docs, "size") == {**dict.fromkeys(range(8), 6), 2: None}


def test_a_second_preview_of_the_same_rows_calls_nothing(docs: tidemill.Table, calls: CallLog) -> None:
    first = docs.preview("size", rows=2, timeout=TIMEOUT)
    calls.take()
    second = docs.preview("size", rows=2, timeout=TIMEOUT)
    assert calls.count() == 0
    assert (first.reused, second.reused) == (0, 2)
    assert shown(first) == shown(second)


def test_rows_that_changed_after_a_preview_are_computed_again(docs: tidemill.Table, calls: CallLog) -> None:
    docs.preview("size", rows=2, timeout=TIMEOUT)
    docs.to_lance().update({"text": "'changed'"}, where="id = 1")
    calls.take()
    filled(docs, "size", on_error="skip")
    assert "1" in calls.take()
    assert by_id(docs, "size")[1] == 7


def test_a_preview_shows_rows_of_a_column_that_is_filled(docs: tidemill.Table) -> None:
    filled(docs, "size", on_error="skip")
    assert len(shown(docs.preview("size", rows=3, timeout=TIMEOUT))) == 3


@pytest.mark.parametrize("rows", [0, -1, 1001])
def test_a_number_of_rows_that_makes_no_preview_is_refused(docs: tidemill.Table, rows: int) -> None:
    with pytest.raises(InvalidRequest, match="rows"):
        docs.preview("size", rows=rows)
