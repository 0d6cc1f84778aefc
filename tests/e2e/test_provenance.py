"""Where values come from, which are out of date, and on which rows functions failed."""

from __future__ import annotations

import os
from typing import Any

import lancedb
import pyarrow as pa
import pytest

import tidemill
from tests.conftest import RunningServer
from tests.e2e.calls import CallLog
from tests.e2e.tables import TIMEOUT, Maker, by_id, filled, numbered, row_ids


@tidemill.udf
def size(text: str) -> int:
    return len(text)


@tidemill.udf(name="size")
def size_and_more(text: str) -> int:
    return len(text) + 100


@pytest.fixture
def docs(make: Maker) -> tidemill.Table:
    """Six rows in two fragments, with a column that is empty."""
    table = make.numbered(3, 3)
    table.add_column("size", size)
    return table


def counts(table: tidemill.Table, column: str = "size") -> dict[str, int]:
    found = table.column_status(column)
    named = {"fresh": found.fresh, "stale": found.stale, "missing": found.missing, "failed": found.failed}
    assert sum(named.values()) == found.rows
    return {name: count for name, count in named.items() if count}


def ids(table: tidemill.Table, rows: list[int]) -> list[int]:
    """The `id` of rows given by their row ids."""
    by_row_id = {row_id: number for number, row_id in row_ids(table).items()}
    return sorted(by_row_id[row_id] for row_id in rows)


def test_rows_are_missing_before_the_first_backfill(docs: tidemill.Table) -> None:
    assert counts(docs) == {"missing": 6}
    assert ids(docs, docs.missing_rows("size")) == list(range(6))


def test_rows_are_fresh_after_a_backfill(docs: tidemill.Table) -> None:
    filled(docs, "size")
    status = docs.column_status("size")
    assert counts(docs) == {"fresh": 6}
    assert status.is_fresh
    assert (status.version, status.branch) == (docs.version, "main")


def test_rows_a_filter_left_out_are_missing(docs: tidemill.Table) -> None:
    filled(docs, "size", where="id IN (1, 4)")
    assert counts(docs) == {"fresh": 2, "missing": 4}
    assert ids(docs, docs.missing_rows("size")) == [0, 2, 3, 5]


def test_rows_whose_input_was_updated_are_stale(docs: tidemill.Table) -> None:
    filled(docs, "size")
    docs.to_lance().update({"text": "'changed'"}, where="id IN (0, 5)")
    assert counts(docs) == {"fresh": 4, "stale": 2}
    assert ids(docs, docs.stale_rows("size")) == [0, 5]


def test_rows_that_were_added_are_missing(docs: tidemill.Table) -> None:
    filled(docs, "size")
    docs.add(numbered(6, 2))
    assert counts(docs) == {"fresh": 6, "missing": 2}
    assert ids(docs, docs.missing_rows("size")) == [6, 7]


def test_rows_that_were_deleted_do_not_count(docs: tidemill.Table) -> None:
    filled(docs, "size")
    docs.to_lance().delete("id < 2")
    assert counts(docs) == {"fresh": 4}


def test_rows_are_counted_by_the_version_of_the_function_they_hold(docs: tidemill.Table) -> None:
    filled(docs, "size")
    docs.alter_column("size", size_and_more)
    filled(docs, "size", where="id < 2")
    held = {found.digest: (found.rows, found.is_current) for found in docs.column_status("size").functions}
    assert held == {size.function.digest: (4, False), size_and_more.function.digest: (2, True)}
    assert counts(docs) == {"fresh": 2, "stale": 4}


def test_another_version_of_the_function_makes_every_row_stale(docs: tidemill.Table) -> None:
    filled(docs, "size", where="id < 4")
    docs.alter_column("size", size_and_more)
    assert counts(docs) == {"stale": 4, "missing": 2}
    assert ids(docs, docs.stale_rows("size")) == [0, 1, 2, 3]


def test_going_back_to_the_first_version_finds_its_values_fresh(docs: tidemill.Table) -> None:
    filled(docs, "size")
    docs.alter_column("size", size_and_more)
    filled(docs, "size", where="id < 2")
    docs.alter_column("size", size)
    assert counts(docs) == {"fresh": 4, "stale": 2}


def test_only_stale_rows_are_computed_where_only_they_are_asked_for(docs: tidemill.Table) -> None:
    filled(docs, "size", where="id < 4")
    docs.to_lance().update({"text": "'changed'"}, where="id = 3")
    job = filled(docs, "size", only="stale")
    assert job.progress.computed == 1
    assert by_id(docs, "size") == {0: 6, 1: 6, 2: 6, 3: 7, 4: None, 5: None}
    assert counts(docs) == {"fresh": 4, "missing": 2}


def test_only_missing_rows_are_computed_where_only_they_are_asked_for(docs: tidemill.Table) -> None:
    filled(docs, "size", where="id < 4")
    docs.to_lance().update({"text": "'changed'"}, where="id = 3")
    job = filled(docs, "size", only="missing")
    assert job.progress.computed == 2
    assert by_id(docs, "size") == {0: 6, 1: 6, 2: 6, 3: 6, 4: 6, 5: 6}
    assert counts(docs) == {"fresh": 5, "stale": 1}


def test_compaction_leaves_rows_as_fresh_as_they_were(docs: tidemill.Table) -> None:
    filled(docs, "size", where="id < 4")
    docs.to_lance().optimize.compact_files()
    assert counts(docs) == {"fresh": 4, "missing": 2}


def picky(id: int, text: str) -> int:
    """Raises on the rows with an `x` in them."""
    if "x!" in text:
        raise ValueError(f"{id} has a cross")
    return len(text)


def lenient(id: int, text: str) -> int:
    return len(text)


def crossed(make: Maker) -> tidemill.Table:
    """Six rows, on the second and the fifth of which the function raises."""
    rows = [{"id": n, "text": "x!" if n in (1, 4) else "text"} for n in range(6)]
    table = make.table(rows)
    table.add_column("size", tidemill.udf(picky))
    return table


def test_skipped_rows_are_listed_with_what_was_raised(make: Maker) -> None:
    table = crossed(make)
    job = filled(table, "size", on_error="skip")
    errors = table.errors("size")
    assert ids(table, [error.row_id for error in errors if error.row_id is not None]) == [1, 4]
    assert {(e.column, e.exception, e.attempts, e.is_skipped, e.job_id) for e in errors} == {
        ("size", "ValueError", 1, True, job.id)
    }
    assert [error.message for error in errors] == ["ValueError: 1 has a cross", "ValueError: 4 has a cross"]
    assert all("in picky" in error.traceback for error in errors)


def test_errors_name_the_version_of_the_function(make: Maker) -> None:
    table = crossed(make)
    filled(table, "size", on_error="skip")
    assert {error.digest for error in table.errors()} == {tidemill.udf(picky).function.digest}


def test_skipped_rows_count_as_failed_and_are_not_tried_again_by_themselves(make: Maker) -> None:
    table = crossed(make)
    filled(table, "size", on_error="skip")
    assert counts(table) == {"fresh": 4, "failed": 2}
    assert ids(table, table.failed_rows("size")) == [1, 4]
    assert filled(table, "size").progress.computed == 0


def test_a_corrected_function_computes_failed_rows_and_keeps_the_others(make: Maker) -> None:
    @tidemill.udf
    def patient(id: int, text: str) -> int:
        return 100

    table = crossed(make)
    filled(table, "size", on_error="skip")
    cost = table.alter_column("size", patient, keep="computed")
    assert (cost.rows, cost.rows_reused) == (2, 4)
    assert counts(table) == {"fresh": 4, "failed": 2}
    assert filled(table, "size", function=patient).progress.computed == 2
    assert by_id(table, "size") == {0: 4, 1: 100, 2: 4, 3: 4, 4: 100, 5: 4}
    assert counts(table) == {"fresh": 6}
    assert table.alter_column("size", patient).rows == 4


def test_failed_rows_of_another_function_are_not_silently_left_out(make: Maker) -> None:
    table = crossed(make)
    filled(table, "size", on_error="skip")
    table.alter_column("size", tidemill.udf(name="size")(lenient))
    with pytest.raises(tidemill.TidemillRequestError, match="so 6 rows are stale; leave out only=failed"):
        table.retry_failed("size")


def test_rows_that_were_mended_leave_the_ledger_when_they_are_tried_again(make: Maker) -> None:
    table = crossed(make)
    filled(table, "size", on_error="skip")
    table.to_lance().update({"text": "'mended'"}, where="id IN (1, 4)")
    filled(table, "size")
    assert table.errors("size") == []
    assert counts(table) == {"fresh": 6}
    assert by_id(table, "size")[4] == 6


def test_rows_that_fail_for_reasons_outside_the_table_are_tried_again_when_asked(
    make: Maker, calls: CallLog
) -> None:
    @tidemill.udf
    def late(id: int) -> int:
        if id == 1 and not calls.lines():
            raise ConnectionError("not yet")
        return id

    table = make.numbered(3)
    table.add_column("late", late)
    filled(table, "late", on_error="skip")
    calls.note("now")
    job = table.retry_failed("late").wait(TIMEOUT)
    assert job.progress.computed == 1
    assert by_id(table, "late") == {0: 0, 1: 1, 2: 2}
    assert (table.errors("late"), table.failed_rows("late")) == ([], [])


def flaky(calls: CallLog, failures: int, error: type[Exception] = ConnectionError) -> Any:
    """Fails so many times, then works; notes every call."""

    @tidemill.udf
    def fetched(id: int) -> int:
        calls.note(id)
        if calls.count() <= failures:
            raise error("come back later")
        return id

    return fetched


def test_a_row_that_fails_twice_is_there_after_the_third_attempt(make: Maker, calls: CallLog) -> None:
    table = make.numbered(1)
    table.add_column("fetched", flaky(calls, 2))
    filled(table, "fetched", on_error=tidemill.retry(attempts=3, backoff=0))
    assert calls.count() == 3
    assert by_id(table, "fetched") == {0: 0}
    assert table.errors("fetched") == []


def test_a_row_that_fails_too_often_ends_the_job_and_says_how_often(make: Maker, calls: CallLog) -> None:
    table = make.numbered(1)
    table.add_column("fetched", flaky(calls, 9))
    with pytest.raises(tidemill.JobFailed, match="come back later"):
        filled(table, "fetched", on_error=tidemill.retry(attempts=3, backoff=0))
    [error] = table.errors("fetched")
    assert (error.attempts, error.is_skipped, calls.count()) == (3, False, 3)


def test_an_exception_that_is_not_worth_it_is_not_tried_again(make: Maker, calls: CallLog) -> None:
    table = make.numbered(1)
    table.add_column("fetched", flaky(calls, 1, ValueError))
    with pytest.raises(tidemill.JobFailed, match="come back later"):
        filled(table, "fetched", on_error=tidemill.retry(attempts=3, backoff=0, on=(OSError,)))
    assert calls.count() == 1


def test_an_exception_is_worth_it_if_what_it_derives_from_is(make: Maker, calls: CallLog) -> None:
    table = make.numbered(1)
    table.add_column("fetched", flaky(calls, 1, ConnectionError))
    filled(table, "fetched", on_error=tidemill.retry(attempts=2, backoff=0, on=(OSError,)))
    assert calls.count() == 2


def test_a_row_is_skipped_after_all_its_attempts(make: Maker, calls: CallLog) -> None:
    table = make.numbered(1)
    table.add_column("fetched", flaky(calls, 9))
    again = tidemill.retry(attempts=3, backoff=0)
    filled(table, "fetched", on_error=tidemill.skip(retry=again))
    assert [(error.attempts, error.is_skipped) for error in table.errors("fetched")] == [(3, True)]


def test_more_skipped_rows_than_allowed_fail_the_job_and_publish_nothing(make: Maker) -> None:
    table = crossed(make)
    version = table.version
    with pytest.raises(tidemill.JobFailed, match="skipped"):
        filled(table, "size", on_error=tidemill.skip(limit=1))
    assert table.version == version
    assert set(by_id(table, "size").values()) == {None}
    assert counts(table)["missing"] == 6


def test_a_crash_is_traced_to_its_row_and_skipped(make: Maker) -> None:
    @tidemill.udf(output=pa.int64())
    def fatal(id: pa.Array) -> pa.Array:
        if 3 in id.to_pylist():
            os._exit(7)
        return id

    table = make.numbered(8)
    table.add_column("fatal", fatal)
    filled(table, "fatal", on_error="skip")
    assert by_id(table, "fatal") == {number: None if number == 3 else number for number in range(8)}
    [error] = table.errors("fatal")
    assert (error.row_id, error.exception) == (row_ids(table)[3], "FunctionCrashed")


def test_an_endless_loop_is_traced_to_its_row_and_skipped(make: Maker) -> None:
    @tidemill.udf(timeout=3)
    def endless(id: int) -> int:
        while id == 2:
            pass
        return id

    table = make.numbered(4)
    table.add_column("endless", endless)
    filled(table, "endless", on_error="skip")
    assert by_id(table, "endless") == {0: 0, 1: 1, 2: None, 3: 3}
    [error] = table.errors("endless")
    assert (error.row_id, error.exception) == (row_ids(table)[2], "TimeoutError")


def test_an_endless_loop_in_a_batch_is_traced_to_its_row(make: Maker) -> None:
    @tidemill.udf(timeout=3, output=pa.int64())
    def endless(id: pa.Array) -> pa.Array:
        while 2 in id.to_pylist():
            pass
        return id

    table = make.numbered(4)
    table.add_column("endless", endless)
    filled(table, "endless", on_error="skip")
    assert by_id(table, "endless") == {0: 0, 1: 1, 2: None, 3: 3}


def test_errors_of_one_job_are_told_from_those_of_another(make: Maker) -> None:
    table = crossed(make)
    first = filled(table, "size", on_error="skip", where="id < 3")
    second = filled(table, "size", on_error="skip", where="id >= 3")
    assert [ids(table, [e.row_id or 0 for e in table.errors("size", job)]) for job in (first, second)] == [
        [1],
        [4],
    ]


def test_a_client_of_lancedb_sees_skipped_rows(lake: tidemill.Lake, server: RunningServer) -> None:
    rows = [{"id": n, "text": "x!" if n == 1 else "text"} for n in range(3)]
    table = lake.create_table("skipped_rows", rows)
    table.add_column("size", tidemill.udf(picky))
    job = filled(table, "size", on_error="skip")
    remote: Any = lancedb.connect("db://x", api_key="k", host_override=server.url)
    [record] = remote.open_table("skipped_rows").function_errors(column="size").records
    assert (record.job_id, record.error_type, record.row_offset) == (job.id, "ValueError", 1)
    lake.drop_table("skipped_rows")
