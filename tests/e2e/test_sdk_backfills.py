"""Backfills at full depth through the SDK: failing rows, previews, how fresh columns are, pausing."""

from __future__ import annotations

from typing import NamedTuple

import pytest

import tidemill
from tests.e2e.calls import Brake, CallLog
from tests.e2e.tables import TIMEOUT, Maker, by_id, filled, row_ids
from tests.e2e.waiting import eventually


class Parts(NamedTuple):
    word: str
    number: int


@tidemill.udf
def parts(text: str) -> Parts:
    word, number = text.split()
    return Parts(word, int(number))


@tidemill.udf
def size(text: str) -> int:
    return len(text)


@tidemill.udf
def size_again(text: str) -> int:
    return len(text) + 1


@tidemill.udf
def inverse(id: int) -> float:
    return 1 / (id - 2)


def test_one_evaluation_fills_several_columns(make: Maker, calls: CallLog) -> None:
    @tidemill.udf
    def counted_parts(text: str) -> Parts:
        calls.note(text)
        word, number = text.split()
        return Parts(word, int(number))

    table = make.numbered(3)
    table.add_columns({"w": "word", "n": "number"}, counted_parts)
    filled(table, "n")
    assert by_id(table, "n") == {0: 0, 1: 1, 2: 2}
    assert by_id(table, "w") == dict.fromkeys(range(3), "text")
    assert calls.count() == 3


def test_fields_may_be_taken_in_their_order(make: Maker) -> None:
    table = make.numbered(2)
    table.add_columns(["first", "second"], parts)
    filled(table, "first")
    assert by_id(table, "second") == {0: 0, 1: 1}


def test_another_function_makes_values_stale_until_the_next_backfill(make: Maker) -> None:
    table = make.numbered(3)
    table.add_column("size", size)
    filled(table, "size")
    table.alter_column("size", size_again)
    assert table.column_status("size").stale == 3
    assert sorted(table.stale_rows("size")) == sorted(row_ids(table).values())
    assert by_id(table, "size") == dict.fromkeys(range(3), 6)
    filled(table, "size")
    assert by_id(table, "size") == dict.fromkeys(range(3), 7)
    assert table.column_status("size").is_fresh


def test_skipped_rows_are_null_listed_and_tried_again(make: Maker) -> None:
    table = make.numbered(4)
    table.add_column("inverse", inverse)
    job = filled(table, "inverse", on_error=tidemill.skip(limit=1))
    assert job.progress.skipped == 1
    assert by_id(table, "inverse") == {0: -0.5, 1: -1.0, 2: None, 3: 1.0}
    assert table.failed_rows("inverse") == [row_ids(table)[2]]
    [error] = table.errors("inverse", job)
    assert (error.exception, error.is_skipped, error.job_id) == ("ZeroDivisionError", True, job.id)
    assert "division by zero" in error.message
    again = table.retry_failed("inverse", on_error="skip").wait(TIMEOUT)
    assert again.progress.skipped == 1


def test_more_skipped_rows_than_allowed_end_the_job(make: Maker) -> None:
    table = make.numbered(4)
    table.add_column("inverse", inverse)
    with pytest.raises(tidemill.JobFailed):
        filled(table, "inverse", on_error=tidemill.skip(limit=0))


def test_a_row_is_tried_as_often_as_asked(make: Maker, calls: CallLog) -> None:
    @tidemill.udf
    def third_time(text: str) -> int:
        calls.note(text)
        if calls.count() < 3:
            raise ConnectionError("not yet")
        return len(text)

    table = make.numbered(1)
    table.add_column("size", third_time)
    filled(table, "size", on_error=tidemill.retry(attempts=3, backoff=0.01, on=(ConnectionError,)))
    assert calls.count() == 3


def test_a_preview_publishes_nothing(make: Maker) -> None:
    table = make.numbered(4)
    table.add_column("inverse", inverse)
    version = table.version
    preview = table.preview("inverse", rows=4, timeout=TIMEOUT)
    assert preview.to_arrow().column_names == ["_rowid", "id", "inverse"]
    assert [error.row_id for error in preview.errors] == [row_ids(table)[2]]
    assert table.version == version
    assert table.column_status("inverse").missing == 4


def test_a_backfill_may_be_for_missing_rows_alone(make: Maker) -> None:
    table = make.numbered(2)
    table.add_column("size", size)
    filled(table, "size")
    table.alter_column("size", size_again)
    table.add([{"id": 2, "text": "text 2"}])
    assert filled(table, "size", only="missing").progress.computed == 1
    assert by_id(table, "size") == {0: 6, 1: 6, 2: 7}


def test_a_job_is_paused_resumed_and_watched(make: Maker, calls: CallLog, brake: Brake) -> None:
    @tidemill.udf
    def slow(text: str) -> int:
        calls.note(text)
        brake.pause()
        return len(text)

    table = make.numbered(2000, 2000)
    table.add_column("slow", slow)
    job = table.backfill("slow", checkpoint_size=20, max_checkpoint_size=20)
    eventually(calls.count, "the function is called")
    job.pause()
    eventually(lambda: job.reload().state == "PAUSED", "the job is paused")
    brake.release()
    job.resume()
    assert [snapshot.state for snapshot in job.watch()][-1] == "DONE"
    assert table.count_rows("slow IS NULL") == 0


def test_jobs_are_found_by_their_table_and_state(make: Maker, lake: tidemill.Lake) -> None:
    table = make.numbered(1)
    table.add_column("size", size)
    job = filled(table, "size")
    assert [found.id for found in lake.jobs(table=table.name, kind="backfill", state="DONE")] == [job.id]
    assert lake.jobs(table=table.name, state="FAILED") == []


def test_variables_of_a_manifest_are_set_where_the_function_runs(make: Maker, lake: tidemill.Lake) -> None:
    @tidemill.udf
    def greeting(text: str) -> str:
        import os

        return os.environ.get("GREETING", "nothing")

    table = make.numbered(1)
    table.add_column("greeting", greeting)
    name = make.namespace
    lake.put_manifest(name, env={"GREETING": "hello"})
    try:
        filled(table, "greeting", manifest=name)
    finally:
        lake.drop_manifest(name)
    assert by_id(table, "greeting") == {0: "hello"}


def test_a_call_that_takes_too_long_has_failed(make: Maker) -> None:
    @tidemill.udf(timeout=3)
    def endless(id: int) -> int:
        import time

        time.sleep(30 if id == 1 else 0)
        return id

    table = make.numbered(2)
    table.add_column("endless", endless)
    filled(table, "endless", on_error="skip")
    assert by_id(table, "endless") == {0: 0, 1: None}
