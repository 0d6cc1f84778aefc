"""Computed columns: what a table sends about them, and what it makes of the answers."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from tests.unit.sdk.noting import JOB, NotingServer
from tidemill.sdk.errors import JobFailed
from tidemill.sdk.functions import udf
from tidemill.sdk.options import retry


class Counts(NamedTuple):
    words: int
    letters: int


@udf
def words(text: str) -> int:
    return len(text.split())


@udf
def counts(text: str) -> Counts:
    return Counts(len(text.split()), len(text))


def stream(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


PREVIEW: dict[str, Any] = {
    "rows_previewed": 1,
    "rows_per_second": 8.0,
    "reused": 0,
    "source_version": 3,
    "arrow": stream(pa.table({"_rowid": [0], "text": ["a tide"], "words": [2]})),
    "truncated": False,
    "errors": [],
}


def test_a_column_may_be_filled_by_itself() -> None:
    server = NotingServer()
    server.lake().table("a.docs").add_column("words", words, auto_backfill=True)
    [entry] = server.sent()["new_columns"]
    assert entry["virtual_column"]["auto_backfill"] is True


def test_several_columns_are_declared_as_one() -> None:
    server = NotingServer()
    server.lake().table("a.docs").add_columns({"n": "words", "m": "letters"}, counts, inputs=["body"])
    [entry] = server.sent()["new_columns"]
    sent = entry["virtual_column"]
    assert (entry["name"], sent["input_columns"]) == ("n", ["body"])
    assert [(output["column"], output["struct_field"]) for output in sent["outputs"]] == [
        ("n", "words"),
        ("m", "letters"),
    ]


def test_a_column_gets_another_function() -> None:
    server = NotingServer()
    server.lake().table("a.docs").alter_column("Word count", words)
    path, body = server.last()
    [alteration] = body["alterations"]
    assert (path, alteration["path"]) == ("/v1/table/a$docs/alter_columns", "`Word count`")
    assert alteration["virtual_column"]["udf_version"] == words.function.digest
    assert alteration["virtual_column"]["outputs"][0]["column"] == "Word count"


def test_a_backfill_says_what_to_do_about_failing_rows() -> None:
    server = NotingServer(backfill_column={"job_id": "j1"}, j1=JOB)
    server.lake().table("a").backfill("words", on_error=retry(2), only="stale", branch="next")
    body = server.sent()
    assert (body["only"], body["branch"], body["on_error"]["attempts"]) == ("stale", "next", 2)


def test_failed_rows_are_tried_again() -> None:
    server = NotingServer(backfill_column={"job_id": "j1"}, j1=JOB)
    server.lake().table("a").retry_failed("words", concurrency=2)
    assert server.sent() == {"column": "words", "only": "failed", "concurrency": 2}


def test_an_explanation_has_tasks_a_duration_and_conflicts() -> None:
    plan = {"read_version": 3, "rows": 8, "rows_reused": 0, "fragments": 1, "commits": 1, "reason": "new"}
    more = {"tasks": 4, "expected_seconds": 2.0, "conflicts": ["job j2 fills it"]}
    server = NotingServer(explain={**plan, **more})
    explanation = server.lake().table(["a", "b.c"]).explain("words", task_size=2)
    assert server.last() == ("/api/v1/tables/a$b.c/explain", {"column": "words", "task_size": 2})
    assert (explanation.tasks, explanation.expected_seconds) == (4, 2.0)
    assert explanation.conflicts == ("job j2 fills it",)


def test_a_preview_is_a_job_whose_rows_come_back() -> None:
    done = {**JOB, "kind": "preview", "result": PREVIEW}
    server = NotingServer(preview={"job_id": "j1"}, j1=done)
    preview = server.lake().table("a.docs").preview("words", 1, where="id > 1", manifest="small")
    assert server.asked() == [("POST", "/api/v1/tables/a$docs/preview"), ("GET", "/api/v1/jobs/j1")]
    assert server.sent() == {"column": "words", "rows": 1, "where": "id > 1", "manifest": "small"}
    assert preview.to_arrow().to_pylist() == [{"_rowid": 0, "text": "a tide", "words": 2}]
    assert preview.rows_per_second == 8.0


def test_a_preview_that_cannot_be_run_is_raised() -> None:
    failed = {**JOB, "state": "FAILED", "failure": {"message": "no numpy"}}
    server = NotingServer(preview={"job_id": "j1"}, j1=failed)
    with pytest.raises(JobFailed, match="no numpy"):
        server.lake().table("a.docs").preview("words")
