"""Backfills compute exactly the rows that need it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidemill
from tests.e2e.calls import CallLog
from tests.e2e.tables import Maker, by_id, filled, numbered


def measured(calls: CallLog) -> Any:
    """A function that notes the text of every row it is called with."""

    @tidemill.udf
    def size(text: str) -> int:
        calls.note(text)
        return len(text)

    return size


def texts(*ids: int) -> list[str]:
    return sorted(f"text {number}" for number in ids)


@pytest.fixture
def docs(make: Maker, calls: CallLog) -> tidemill.Table:
    """Ten rows in fragments of four, four and two, with the column `size` filled."""
    table = make.numbered(4, 4, 2)
    table.add_column("size", measured(calls))
    filled(table, "size")
    calls.take()
    return table


def test_every_row_is_computed_once(make: Maker, calls: CallLog) -> None:
    table = make.numbered(4, 4, 2)
    table.add_column("size", measured(calls))
    filled(table, "size")
    assert by_id(table, "size") == dict.fromkeys(range(10), 6)
    assert calls.take() == texts(*range(10))


def test_a_declared_column_is_null_until_it_is_filled(make: Maker, calls: CallLog) -> None:
    table = make.numbered(3)
    table.add_column("size", measured(calls))
    assert by_id(table, "size") == {0: None, 1: None, 2: None}
    assert calls.count() == 0


def test_what_explain_says_is_what_is_done(make: Maker, calls: CallLog) -> None:
    table = make.numbered(4, 4, 2)
    table.add_column("size", measured(calls))
    said = table.explain("size", commit_granularity=2)
    job = filled(table, "size", commit_granularity=2)
    assert job.result is not None
    assert (said.rows, said.rows_reused, said.fragments, said.commits) == (10, 0, 3, 2)
    assert (job.progress.computed, job.progress.reused, job.progress.commits) == (10, 0, 2)
    assert job.result["source_version"] == said.read_version


def test_what_explain_says_of_changes_is_what_is_done(docs: tidemill.Table, calls: CallLog) -> None:
    docs.to_lance().update({"text": "'changed'"}, where="id = 1")
    docs.add(numbered(10, 2))
    said = docs.explain("size")
    job = filled(docs, "size")
    assert said.rows == job.progress.computed == calls.count() == 3
    assert said.rows_reused == job.progress.reused == 9
    assert said.commits == job.progress.commits


def test_a_second_backfill_does_nothing(docs: tidemill.Table, calls: CallLog) -> None:
    version = docs.version
    job = filled(docs, "size")
    assert docs.version == version
    assert calls.count() == 0
    assert (job.progress.computed, job.progress.reused, job.progress.commits) == (0, 10, 0)


def test_explain_calls_it_a_noop_when_nothing_is_to_be_done(docs: tidemill.Table) -> None:
    assert docs.explain("size").is_noop


def test_null_results_are_not_computed_again(make: Maker, calls: CallLog) -> None:
    @tidemill.udf
    def nothing(text: str) -> int | None:
        calls.note(text)
        return None

    table = make.numbered(3)
    table.add_column("nothing", nothing)
    filled(table, "nothing")
    assert calls.take() == texts(0, 1, 2)
    filled(table, "nothing")
    assert calls.take() == []
    assert by_id(table, "nothing") == {0: None, 1: None, 2: None}


def test_updated_rows_are_computed_again_and_only_those(docs: tidemill.Table, calls: CallLog) -> None:
    docs.to_lance().update({"text": "concat(text, '!')"}, where="id IN (2, 5)")
    filled(docs, "size")
    assert calls.take() == ["text 2!", "text 5!"]
    assert by_id(docs, "size") == {**dict.fromkeys(range(10), 6), 2: 7, 5: 7}


def test_an_update_keeps_the_values_of_other_rows(docs: tidemill.Table) -> None:
    docs.to_lance().update({"text": "'changed'"}, where="id = 2")
    kept = by_id(docs, "size")
    kept.pop(2)
    assert kept == dict.fromkeys([0, 1, *range(3, 10)], 6)


def test_an_update_of_another_column_computes_nothing_but_is_seen_through(
    make: Maker, calls: CallLog
) -> None:
    table = make.table([{"id": n, "text": f"text {n}", "other": 0} for n in range(4)])
    table.add_column("size", measured(calls))
    filled(table, "size")
    calls.take()
    table.to_lance().update({"other": "1"}, where="id = 1")
    filled(table, "size")
    # Lance moves an updated row as a whole; its lineage does not say which columns were meant.
    assert set(calls.take()) <= {"text 1"}
    assert by_id(table, "size") == dict.fromkeys(range(4), 6)


def test_appended_rows_are_computed(docs: tidemill.Table, calls: CallLog) -> None:
    docs.to_lance().insert(pa.Table.from_pylist(numbered(10, 3)))
    filled(docs, "size")
    assert calls.take() == texts(10, 11, 12)
    assert by_id(docs, "size") == {**dict.fromkeys(range(10), 6), **dict.fromkeys(range(10, 13), 7)}


def test_deleted_rows_stay_deleted_and_cost_nothing(docs: tidemill.Table, calls: CallLog) -> None:
    docs.to_lance().delete("id IN (1, 6)")
    filled(docs, "size")
    assert calls.take() == []
    assert by_id(docs, "size") == dict.fromkeys([0, 2, 3, 4, 5, 7, 8, 9], 6)


def test_changes_of_every_sort_at_once_are_followed(docs: tidemill.Table, calls: CallLog) -> None:
    dataset = docs.to_lance()
    dataset.update({"text": "'new'"}, where="id IN (0, 9)")
    dataset.delete("id = 4")
    docs.add(numbered(10, 1))
    docs.to_lance().update({"text": "'newer'"}, where="id = 9")
    filled(docs, "size")
    assert calls.take() == ["new", "newer", "text 10"]
    assert by_id(docs, "size") == {0: 3, **dict.fromkeys([1, 2, 3, 5, 6, 7, 8], 6), 9: 5, 10: 7}


def test_values_fit_their_rows_when_some_of_a_fragment_were_deleted_before(
    make: Maker, calls: CallLog
) -> None:
    @tidemill.udf(output=pa.int64())
    def twice(id: pa.Array) -> pa.Array:
        import pyarrow.compute as compute

        return compute.multiply(id, 2)

    table = make.numbered(5, 5)
    table.to_lance().delete("id IN (0, 2, 4, 9)")
    table.add_column("twice", twice)
    filled(table, "twice")
    assert by_id(table, "twice") == {number: 2 * number for number in (1, 3, 5, 6, 7, 8)}


def test_compaction_computes_nothing(docs: tidemill.Table, calls: CallLog) -> None:
    docs.to_lance().delete("id = 3")
    docs.to_lance().optimize.compact_files()
    assert len(docs.to_lance().get_fragments()) == 1
    job = filled(docs, "size")
    assert calls.count() == 0
    assert job.progress.commits == 0
    assert by_id(docs, "size") == dict.fromkeys([0, 1, 2, *range(4, 10)], 6)


def test_changes_after_a_compaction_are_followed(docs: tidemill.Table, calls: CallLog) -> None:
    docs.to_lance().optimize.compact_files()
    docs.to_lance().update({"text": "'changed'"}, where="id = 7")
    docs.add(numbered(10, 1))
    filled(docs, "size")
    assert calls.take() == ["changed", "text 10"]


def test_a_filter_computes_exactly_its_rows(make: Maker, calls: CallLog) -> None:
    table = make.numbered(4, 4)
    table.add_column("size", measured(calls))
    said = table.explain("size", where="id % 2 = 0")
    filled(table, "size", where="id % 2 = 0")
    assert said.rows == 4
    assert calls.take() == texts(0, 2, 4, 6)
    assert by_id(table, "size") == {n: 6 if n % 2 == 0 else None for n in range(8)}


def test_what_a_filter_left_out_is_computed_later(make: Maker, calls: CallLog) -> None:
    table = make.numbered(4, 4)
    table.add_column("size", measured(calls))
    filled(table, "size", where="id < 3")
    calls.take()
    filled(table, "size")
    assert calls.take() == texts(3, 4, 5, 6, 7)
    assert by_id(table, "size") == dict.fromkeys(range(8), 6)


def test_a_filter_computes_its_rows_even_if_they_are_up_to_date(docs: tidemill.Table, calls: CallLog) -> None:
    filled(docs, "size", where="id = 5 OR id = 8")
    assert calls.take() == texts(5, 8)
    assert by_id(docs, "size") == dict.fromkeys(range(10), 6)


def test_a_filter_that_holds_for_all_computes_all_again(docs: tidemill.Table, calls: CallLog) -> None:
    filled(docs, "size", where="1=1")
    assert calls.take() == texts(*range(10))


def test_a_filter_that_holds_for_none_computes_nothing(docs: tidemill.Table, calls: CallLog) -> None:
    version = docs.version
    filled(docs, "size", where="id < 0")
    assert calls.count() == 0
    assert docs.version == version


def test_rows_appended_after_a_pinned_version_stay_null_and_undone(make: Maker, calls: CallLog) -> None:
    table = make.numbered(3)
    table.add_column("size", measured(calls))
    pinned = table.version
    table.add(numbered(3, 2))
    filled(table, "size", read_version=pinned)
    assert calls.take() == texts(0, 1, 2)
    assert by_id(table, "size") == {0: 6, 1: 6, 2: 6, 3: None, 4: None}
    filled(table, "size")
    assert calls.take() == texts(3, 4)


def test_rows_updated_after_a_pinned_version_are_computed_later(make: Maker, calls: CallLog) -> None:
    table = make.numbered(3)
    table.add_column("size", measured(calls))
    pinned = table.version
    table.to_lance().update({"text": "'changed'"}, where="id = 1")
    filled(table, "size", read_version=pinned)
    calls.take()
    filled(table, "size")
    assert calls.take() == ["changed"]
    assert by_id(table, "size") == {0: 6, 1: 7, 2: 6}


def test_a_backfill_can_stop_after_some_fragments(make: Maker, calls: CallLog) -> None:
    table = make.numbered(4, 3, 2)
    table.add_column("size", measured(calls))
    filled(table, "size", num_frags=2)
    assert calls.take() == texts(*range(7))
    filled(table, "size")
    assert calls.take() == texts(7, 8)


def test_the_granularity_says_how_many_fragments_a_commit_has(make: Maker, calls: CallLog) -> None:
    table = make.numbered(2, 2, 2)
    table.add_column("size", measured(calls))
    version = table.version
    job = filled(table, "size", commit_granularity=1)
    assert job.progress.commits == 3
    assert table.version == version + 3


def test_all_fragments_go_into_one_commit_unless_said_otherwise(make: Maker, calls: CallLog) -> None:
    table = make.numbered(2, 2, 2)
    table.add_column("size", measured(calls))
    version = table.version
    filled(table, "size")
    assert table.version == version + 1


def test_concurrency_is_the_number_of_tasks(make: Maker, calls: CallLog) -> None:
    @tidemill.udf
    def process(text: str) -> int:
        import os

        calls.note(os.getpid())
        return os.getpid()

    table = make.numbered(2, 2, 2, 2)
    table.add_column("process", process)
    filled(table, "process", concurrency=1)
    assert len(set(calls.take())) == 1


def test_the_checkpoint_size_bounds_the_batches_of_a_function(make: Maker, calls: CallLog) -> None:
    @tidemill.udf(output=pa.int64())
    def same(id: pa.Array) -> pa.Array:
        calls.note(len(id))
        return id

    table = make.numbered(50)
    table.add_column("same", same)
    filled(table, "same", checkpoint_size=20, max_checkpoint_size=20)
    assert calls.take() == ["10", "20", "20"]


@pytest.mark.parametrize(
    "options",
    [{"num_frags": 0}, {"concurrency": -1}, {"read_version": 999}, {"where": "nowhere = 1"}],
    ids=str,
)
def test_senseless_options_are_refused(make: Maker, calls: CallLog, options: dict[str, Any]) -> None:
    table = make.numbered(3)
    table.add_column("size", measured(calls))
    with pytest.raises(tidemill.TidemillRequestError) as refused:
        table.backfill("size", **options)
    assert refused.value.status == 400


def test_a_column_may_be_computed_from_a_computed_column(docs: tidemill.Table, calls: CallLog) -> None:
    @tidemill.udf
    def doubled(size: int) -> int:
        calls.note(size)
        return 2 * size

    docs.add_column("doubled", doubled)
    filled(docs, "doubled")
    assert by_id(docs, "doubled") == dict.fromkeys(range(10), 12)
    assert calls.take() == ["6"] * 10


def test_a_column_declared_with_another_function_is_filled_anew(docs: tidemill.Table, calls: CallLog) -> None:
    @tidemill.udf
    def loud(text: str) -> str:
        calls.note(text)
        return text.upper()

    docs.add_column("loud", loud)
    filled(docs, "loud")
    assert calls.count() == 10
    assert by_id(docs, "size") == dict.fromkeys(range(10), 6)


def test_a_table_without_rows_is_filled_at_once(make: Maker, calls: CallLog) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    table = make.lake.create_table(f"{make.namespace}.empty", schema.empty_table())
    table.add_column("size", measured(calls))
    assert filled(table, "size").progress.commits == 0
    assert table.count_rows() == 0
