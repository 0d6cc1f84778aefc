"""The management API of computed columns: how fresh they are, and where functions failed."""

from __future__ import annotations

import pytest

from tests.unit.protocols.stand import Stand
from tests.unit.protocols.stand_jobs import SOME_ID, SOME_TIME
from tidemill.jobs.model.failures import RowError, RowFailure
from tidemill.jobs.model.options import RowSelection

TABLE = "/api/v1/tables/docs$pages"


def error(row_id: int, job_id: str = "j") -> RowError:
    failure = RowFailure(row_id, "ValueError", "bad", "Traceback…", 2)
    return RowError(SOME_ID, "sha256:0", job_id, failure, True, SOME_TIME)


@pytest.fixture
def stand() -> Stand:
    made = Stand()
    made.provenance.row_ids[RowSelection.STALE] = [1, 5, 2**40]
    made.provenance.row_errors = [
        ("size", error(1)),
        ("size", error(7)),
        ("size", error(9, "k")),
        ("other", error(3)),
    ]
    return made


def message(stand: Stand, path: str) -> str:
    answer = stand.get(f"{TABLE}/{path}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_input")
    text: str = answer.json()["error"]["message"]
    return text


def test_a_column_tells_how_fresh_it_is(stand: Stand) -> None:
    assert stand.get(f"{TABLE}/columns/a%2Fb/status?branch=dev").json() == {
        "column": "a/b",
        "branch": "dev",
        "version": 4,
        "rows": 5,
        "fresh": 3,
        "stale": 1,
        "missing": 1,
        "failed": 0,
        "functions": [
            {"digest": "sha256:0", "name": "length", "rows": 3, "is_current": True, "is_kept": False}
        ],
    }


def test_rows_come_in_pages(stand: Stand) -> None:
    path = f"{TABLE}/columns/size/rows?selection=stale"
    assert stand.get(path).json() == {"row_ids": [1, 5, 2**40]}
    first = stand.get(f"{path}&limit=2").json()
    assert first == {"row_ids": [1, 5], "page_token": "5"}
    assert stand.get(f"{path}&limit=2&page_token=5").json() == {"row_ids": [2**40]}
    assert stand.get(f"{TABLE}/columns/size/rows?selection=missing").json() == {"row_ids": []}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "selection"),
        ("selection=fresh", "selection"),
        ("selection=stale&limit=0", "limit"),
        ("selection=stale&page_token=x", "page_token"),
        ("selection=stale&page_token=-1", "page_token"),
    ],
)
def test_a_senseless_choice_of_rows_is_refused(stand: Stand, query: str, field: str) -> None:
    assert message(stand, f"columns/size/rows?{query}").startswith(f"{field}: ")


def test_errors_are_told_whole(stand: Stand) -> None:
    (shown,) = stand.get(f"{TABLE}/errors?column=other&branch=dev").json()["errors"]
    assert shown == {
        "column": "other",
        "row_id": 3,
        "digest": "sha256:0",
        "job_id": "j",
        "exception": "ValueError",
        "message": "bad",
        "traceback": "Traceback…",
        "attempts": 2,
        "skipped": True,
        "at": "2026-01-02T03:04:05Z",
    }
    assert stand.provenance.branches == ["dev"]


@pytest.mark.parametrize(
    ("query", "rows"),
    [("", [1, 7, 9, 3]), ("column=size", [1, 7, 9]), ("job_id=k", [9]), ("column=size&job_id=j", [1, 7])],
)
def test_errors_are_of_a_column_or_a_job(stand: Stand, query: str, rows: list[int]) -> None:
    body = stand.get(f"{TABLE}/errors?{query}").json()
    assert [shown["row_id"] for shown in body["errors"]] == rows
    assert body.keys() == {"errors"}


def test_errors_of_one_column_come_in_pages(stand: Stand) -> None:
    first = stand.get(f"{TABLE}/errors?column=size&limit=2").json()
    assert first["page_token"] == "7"
    second = stand.get(f"{TABLE}/errors?column=size&limit=2&page_token=7").json()
    assert [shown["row_id"] for shown in second["errors"]] == [9]
    assert second.keys() == {"errors"}


def test_errors_of_several_columns_are_cut_off_and_say_so(stand: Stand) -> None:
    body = stand.get(f"{TABLE}/errors?limit=2").json()
    assert (len(body["errors"]), body["truncated"], "page_token" in body) == (2, True, False)
    assert message(stand, "errors?page_token=7").startswith("page_token: needs column or job_id")


def test_a_preview_is_a_job(stand: Stand) -> None:
    answer = stand.post(f"{TABLE}/preview", json={"column": "size", "rows": 5})
    assert (answer.status_code, answer.json()) == (202, {"job_id": "job-1"})
    assert stand.get("/api/v1/jobs/job-1").json()["kind"] == "preview"
