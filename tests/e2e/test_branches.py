"""Branches of a table have values and provenance of their own."""

from __future__ import annotations

from typing import Any

import pytest

import tidemill
from tests.e2e.calls import CallLog
from tests.e2e.tables import Maker, by_id, filled, numbered, row_ids
from tidemill.sdk.errors import NotFound


@pytest.fixture
def docs(make: Maker, calls: CallLog) -> tidemill.Table:
    """Four rows with an empty column, and a branch `dev` made from that."""

    @tidemill.udf
    def size(text: str) -> int:
        calls.note(text)
        return len(text)

    table = make.numbered(2, 2)
    table.add_column("size", size)
    table.to_lance().create_branch("dev")
    return table


def on_dev(table: tidemill.Table) -> Any:
    """The branch as a dataset."""
    return table.to_lance().checkout_version(("dev", None))


def sizes_on_dev(table: tidemill.Table) -> dict[int, int | None]:
    rows = on_dev(table).to_table(columns=["id", "size"]).to_pylist()
    return {row["id"]: row["size"] for row in rows}


def test_a_backfill_of_a_branch_leaves_main_as_it_was(docs: tidemill.Table) -> None:
    version = docs.version
    job = filled(docs, "size", branch="dev")
    assert job.branch == "dev"
    assert sizes_on_dev(docs) == dict.fromkeys(range(4), 6)
    assert by_id(docs, "size") == dict.fromkeys(range(4))
    assert docs.version == version


def test_each_branch_knows_which_of_its_rows_are_filled(docs: tidemill.Table) -> None:
    filled(docs, "size", branch="dev")
    dev, main = docs.column_status("size", branch="dev"), docs.column_status("size")
    assert (dev.branch, dev.fresh, dev.missing) == ("dev", 4, 0)
    assert (main.branch, main.fresh, main.missing) == ("main", 0, 4)
    assert docs.missing_rows("size", branch="dev") == []
    assert docs.missing_rows("size") == sorted(row_ids(docs).values())


def test_main_is_filled_after_a_branch(docs: tidemill.Table, calls: CallLog) -> None:
    filled(docs, "size", branch="dev")
    calls.take()
    filled(docs, "size", branch="main")
    assert by_id(docs, "size") == dict.fromkeys(range(4), 6)
    assert calls.count() == 4


def test_a_second_backfill_of_a_branch_does_nothing(docs: tidemill.Table, calls: CallLog) -> None:
    filled(docs, "size", branch="dev")
    calls.take()
    job = filled(docs, "size", branch="dev")
    assert (job.progress.computed, job.progress.commits, calls.count()) == (0, 0, 0)


def test_changes_on_a_branch_are_followed_there_alone(docs: tidemill.Table, calls: CallLog) -> None:
    filled(docs, "size")
    filled(docs, "size", branch="dev")
    calls.take()
    on_dev(docs).update({"text": "'changed'"}, where="id = 1")
    assert docs.explain("size").is_noop
    filled(docs, "size", branch="dev")
    assert calls.take() == ["changed"]
    assert sizes_on_dev(docs) == {0: 6, 1: 7, 2: 6, 3: 6}
    assert by_id(docs, "size") == dict.fromkeys(range(4), 6)


def test_what_explain_says_of_a_branch_is_about_the_branch(docs: tidemill.Table) -> None:
    docs.add(numbered(4, 2))
    assert docs.explain("size", branch="dev").rows == 4
    assert docs.explain("size").rows == 6


def test_errors_are_those_of_the_branch_they_happened_on(make: Maker) -> None:
    @tidemill.udf
    def picky(id: int) -> int:
        if id == 1:
            raise ValueError("not this one")
        return id

    table = make.numbered(3)
    table.add_column("picky", picky)
    table.to_lance().create_branch("dev")
    filled(table, "picky", branch="dev", on_error="skip")
    assert [error.exception for error in table.errors("picky", branch="dev")] == ["ValueError"]
    assert table.errors("picky") == []


def test_a_preview_of_a_branch_shows_its_rows(docs: tidemill.Table) -> None:
    on_dev(docs).update({"text": "'changed'"}, where="id = 0")
    shown = docs.preview("size", branch="dev", where="id = 0", timeout=120).to_arrow()
    assert shown.column("size").to_pylist() == [7]


def test_a_branch_that_does_not_exist_is_not_found(docs: tidemill.Table) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        docs.backfill("size", branch="nowhere")
