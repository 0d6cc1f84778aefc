"""How fresh columns are and where functions failed, against a server that only notes what it is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.sdk.noting import JOB, NotingServer
from tidemill.sdk.http import ServerClient
from tidemill.sdk.jobs import Job

STATUS: dict[str, Any] = {
    "column": "words",
    "branch": "main",
    "version": 7,
    "rows": 1000,
    "fresh": 794,
    "stale": 150,
    "missing": 50,
    "failed": 6,
    "functions": [{"digest": "sha256:1", "name": "words", "rows": 800, "is_current": True, "is_kept": False}],
}
ERROR = {
    "column": "words",
    "row_id": 17,
    "digest": "sha256:1",
    "job_id": "j1",
    "exception": "ValueError",
    "message": "no",
    "traceback": "Traceback: …",
    "attempts": 3,
    "skipped": True,
    "at": "2030-01-02T03:04:05Z",
}


def test_the_status_of_a_column_is_asked_for() -> None:
    server = NotingServer(status=STATUS)
    status = server.lake().table("a.docs").column_status("word count", branch="next")
    assert server.asked() == [("GET", "/api/v1/tables/a$docs/columns/word%20count/status?branch=next")]
    assert str(status) == (
        "a.docs.words at version 7 of main: 1,000 rows, 794 fresh, 150 stale, 50 missing, 6 failed"
    )
    assert status.functions[0].is_current
    assert not status.is_fresh


def test_a_column_without_faults_is_fresh() -> None:
    some_failed = {**STATUS, "fresh": 994, "stale": 0, "missing": 0}
    assert not NotingServer(status=some_failed).lake().table("a").column_status("words").is_fresh
    whole = {**some_failed, "fresh": 1000, "failed": 0}
    assert NotingServer(status=whole).lake().table("a").column_status("words").is_fresh


@pytest.mark.parametrize("selection", ["stale", "missing", "failed"])
def test_rows_are_listed_page_by_page(selection: str) -> None:
    server = NotingServer(rows=[{"row_ids": [1, 2], "page_token": "2"}, {"row_ids": [1 << 40]}])
    table = server.lake().table("a")
    assert getattr(table, f"{selection}_rows")("words") == [1, 2, 1 << 40]
    path = f"/api/v1/tables/a/columns/words/rows?selection={selection}"
    assert [asked for _, asked in server.asked()] == [path, f"{path}&page_token=2"]


def test_rows_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="rows are stale, missing, failed, not 'fresh'"):
        NotingServer().lake().table("a").column_rows("words", "fresh")  # type: ignore[arg-type]  # the fault


def test_errors_are_listed_page_by_page() -> None:
    server = NotingServer(errors=[{"errors": [ERROR], "page_token": "x"}, {"errors": [ERROR]}])
    first, second = server.lake().table("a").errors("words", "j1", branch="next")
    assert first == second
    assert (first.row_id, first.exception, first.attempts, first.is_skipped) == (17, "ValueError", 3, True)
    assert first.at is not None
    assert str(first) == "words, row 17: ValueError: no (tried 3 times)"
    assert str(replace(first, message="ValueError: no")) == str(first)
    assert dict(server.requests[0].url.params) == {"column": "words", "job_id": "j1", "branch": "next"}


def test_errors_may_be_those_of_a_job() -> None:
    server = NotingServer(errors={"errors": []})
    job = Job(ServerClient("http://lake"), JOB)
    assert server.lake().table("a").errors(job=job) == []
    assert server.asked() == [("GET", "/api/v1/tables/a/errors?job_id=j1")]


def test_errors_that_were_left_out_are_not_passed_over_in_silence() -> None:
    server = NotingServer(errors={"errors": [ERROR], "truncated": True})
    with pytest.warns(UserWarning, match="a: these are the first 1 errors; name a column or a job for all"):
        assert len(server.lake().table("a").errors()) == 1
