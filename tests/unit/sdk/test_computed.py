"""Computed columns: what a table sends about them, and what it makes of the answers."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import httpx
import pyarrow as pa
import pytest

from tests.unit.sdk.noting import JOB, NotingServer
from tidemill.sdk.errors import FunctionDiffers, InvalidRequest, JobFailed
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


PLAN: dict[str, Any] = {
    "read_version": 3,
    "rows": 8,
    "rows_reused": 0,
    "fragments": 1,
    "commits": 1,
    "reason": "8 rows hold values of another version of the function",
}


def test_a_column_gets_another_function() -> None:
    server = NotingServer(explain=PLAN)
    server.lake().table("a.docs").alter_column("Word count", words)
    assert server.asked()[0] == ("POST", "/v1/table/a$docs/alter_columns")
    [alteration] = server.sent()["alterations"]
    assert alteration["path"] == "`Word count`"
    assert alteration["virtual_column"]["udf_version"] == words.function.digest
    assert alteration["virtual_column"]["outputs"][0]["column"] == "Word count"
    assert "keep" not in alteration


def test_computed_values_are_kept_when_asked_for() -> None:
    server = NotingServer(explain=PLAN)
    server.lake().table("a.docs").alter_column("words", words, keep="computed")
    assert server.sent()["alterations"][0]["keep"] == "computed"


def test_another_function_says_what_the_next_backfill_costs() -> None:
    server = NotingServer(explain={**PLAN, "expected_seconds": 4.0})
    cost = server.lake().table("a.docs").alter_column("words", words)
    assert server.last() == ("/api/v1/tables/a$docs/explain", {"column": "words"})
    assert (cost.rows, cost.expected_seconds) == (8, 4.0)
    assert "computes 8 rows" in str(cost)


class TakenColumn(NotingServer):
    """A server whose column is there already."""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        answer = super().__call__(request)
        if not request.url.path.endswith("/add_columns"):
            return answer
        return httpx.Response(400, json={"code": 13, "error": "name: a.docs already has a column 'words'"})


def status_of(digest: str) -> dict[str, Any]:
    function = {"digest": digest, "name": "words", "rows": 5, "is_current": True}
    states = {"rows": 5, "fresh": 5, "stale": 0, "missing": 0, "failed": 0}
    return {"column": "words", "branch": "main", "version": 3, **states, "functions": [function]}


OTHER = f"sha256:{'ab' * 32}"
STARTED: dict[str, Any] = {"backfill_column": {"job_id": "j1"}, "j1": JOB}
ADVICE = (
    "a.docs.words is filled by words (sha256:abababab), and words of this program is another version "
    f'({words.function.digest:.15}): call alter_column("words", words, keep="computed") to keep the values '
    'computed so far, or alter_column("words", words) to recompute every row'
)


def test_a_backfill_for_another_version_than_the_catalog_has_is_not_started() -> None:
    server = NotingServer(status=status_of(OTHER), **STARTED)
    with pytest.raises(FunctionDiffers) as raised:
        server.lake().table("a.docs").backfill("words", function=words)
    assert str(raised.value) == ADVICE
    assert [method for method, _ in server.asked()] == ["GET"]


def test_a_backfill_for_the_version_that_the_catalog_has_is_started() -> None:
    server = NotingServer(status=status_of(words.function.digest), **STARTED)
    assert server.lake().table("a.docs").backfill("words", function=words).id == "j1"


def test_a_backfill_after_a_declaration_that_was_refused_warns_of_the_other_version() -> None:
    server = TakenColumn(status=status_of(OTHER), **STARTED)
    lake = server.lake()
    with pytest.raises(InvalidRequest, match="already has"):
        lake.table("a.docs").add_column("words", words)
    with pytest.warns(UserWarning, match="another version") as warned:
        assert lake.table("a.docs").backfill("words").id == "j1"
    assert [str(one.message) for one in warned] == [f"{ADVICE}. This job calls the version of the catalog"]
    assert warned[0].filename == __file__


def test_a_program_that_declares_the_same_version_again_is_not_warned() -> None:
    lake = TakenColumn(status=status_of(words.function.digest), **STARTED).lake()
    with pytest.raises(InvalidRequest):
        lake.table("a.docs").add_column("words", words)
    assert lake.table("a.docs").backfill("words").id == "j1"


def test_a_program_that_replaced_the_function_is_not_warned() -> None:
    server = TakenColumn(status=status_of(OTHER), explain=PLAN, **STARTED)
    lake = server.lake()
    with pytest.raises(InvalidRequest):
        lake.table("a.docs").add_column("words", words)
    lake.table("a.docs").alter_column("words", words, keep="computed")
    assert lake.table("a.docs").backfill("words").id == "j1"


def test_a_backfill_without_a_function_asks_for_nothing_else() -> None:
    server = NotingServer(**STARTED)
    server.lake().table("a.docs").backfill("words")
    assert server.asked()[0] == ("POST", "/v1/table/a$docs/backfill_column")


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
    more = {"tasks": 4, "expected_seconds": 2.0, "conflicts": ["job j2 fills it"]}
    server = NotingServer(explain={**PLAN, **more})
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
