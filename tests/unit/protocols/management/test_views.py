"""The management API of views: how fresh they are, what a refresh would do, and where they come from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyroaring import BitMap64

from tests.unit.protocols.stand import Stand
from tests.unit.protocols.stand_jobs import SOME_ID, SOME_TIME
from tidemill.jobs.model.failures import RowError, RowFailure
from tidemill.jobs.model.jobs import JobState
from tidemill.jobs.model.plans import RefreshMode
from tidemill.jobs.model.views import RefreshPolicy, ViewKind
from tidemill.jobs.service.status import LastRefresh, SourceStatus, ViewStatus

VIEW = "/api/v1/views/docs$words"
STATUS = ViewStatus(
    view=("docs", "words"),
    kind=ViewKind.CHUNKER,
    policy=RefreshPolicy.AUTO,
    has_auto_refresh=True,
    version=4,
    is_fresh=False,
    reason="the rows changed since source version 2 are known",
    sources=(SourceStatus(("docs", "pages"), 2, 5, 3, 1, 0),),
    last_refresh=LastRefresh("j", JobState.DONE, SOME_TIME, "full"),
)


def error(row_id: int, job_id: str = "j") -> RowError:
    failure = RowFailure(row_id, "ValueError", "bad", "Traceback…")
    return RowError(SOME_ID, "sha256:0", job_id, failure, True, SOME_TIME)


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_a_view_tells_how_far_it_is_behind(stand: Stand) -> None:
    stand.view_status.given = STATUS
    assert stand.get(f"{VIEW}/status").json() == {
        "view": ["docs", "words"],
        "kind": "chunker",
        "policy": "auto",
        "auto_refresh": True,
        "version": 4,
        "is_fresh": False,
        "reason": "the rows changed since source version 2 are known",
        "owner": None,
        "sources": [
            {
                "source": ["docs", "pages"],
                "version_consumed": 2,
                "latest_version": 5,
                "versions_behind": 3,
                "inserted": 3,
                "updated": 1,
                "deleted": 0,
            }
        ],
        "last_refresh": {
            "job_id": "j",
            "state": "DONE",
            "finished_at": "2026-01-02T03:04:05Z",
            "mode": "full",
        },
    }


def test_what_is_not_known_of_a_view_is_null(stand: Stand) -> None:
    unread = SourceStatus(("docs", "pages"), None, 5)
    gone = SourceStatus(("gone",), 2, None)
    stand.view_status.given = replace(STATUS, sources=(unread, gone), last_refresh=None)
    body = stand.get(f"{VIEW}/status").json()
    assert body["last_refresh"] is None
    assert [source["versions_behind"] for source in body["sources"]] == [5, None]
    assert [source["inserted"] for source in body["sources"]] == [None, None]


def test_a_plain_table_has_no_status_of_a_view(stand: Stand) -> None:
    answer = stand.get(f"{VIEW}/status")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "view_not_found")


def test_a_refresh_is_explained_whole(stand: Stand) -> None:
    plan = replace(stand.plans.refresh_plan, mode=RefreshMode.INCREMENTAL, rows=4, keys=BitMap64([1, 2]))
    stand.plans.refresh_plan, stand.plans.expected_seconds = plan, 1.5
    assert stand.post(f"{VIEW}/explain", json={"full": False}).json() == {
        "mode": "incremental",
        "reason": "nothing changed",
        "source_version": 3,
        "rows": 4,
        "rows_reused": 5,
        "rows_replaced": 0,
        "rows_removed": 0,
        "keys": 2,
        "sources": [
            {
                "source": ["docs", "pages"],
                "from_version": 2,
                "version": 3,
                "inserted": 0,
                "updated": 0,
                "deleted": 0,
            }
        ],
        "expected_seconds": 1.5,
        "conflicts": ["job j is refreshing it"],
    }


def test_a_senseless_refresh_is_not_explained(stand: Stand) -> None:
    answer = stand.post(f"{VIEW}/explain", json={"src_version": 0})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_input")


def test_a_verification_is_a_job(stand: Stand) -> None:
    answer = stand.post(f"{VIEW}/verify", json={"rows": 5, "seed": 1}, headers={"idempotency-key": "k"})
    assert (answer.status_code, answer.json()) == (202, {"job_id": "job-1"})
    shown = stand.get("/api/v1/jobs/job-1").json()
    assert (shown["kind"], shown["column"], shown["table"]) == ("verify", None, ["docs", "words"])
    assert stand.jobs.keys == ["k"]


def test_a_verification_of_no_rows_is_refused(stand: Stand) -> None:
    assert stand.post(f"{VIEW}/verify", json={"rows": 0}).status_code == 400


def test_errors_of_a_view_come_in_pages_without_a_column(stand: Stand) -> None:
    stand.view_status.row_errors = [error(1), error(7), error(9, "k")]
    first = stand.get(f"{VIEW}/errors?limit=2").json()
    assert first["page_token"] == "7"
    assert [(shown["row_id"], shown["column"]) for shown in first["errors"]] == [(1, None), (7, None)]
    second = stand.get(f"{VIEW}/errors?limit=2&page_token=7").json()
    assert [shown["row_id"] for shown in second["errors"]] == [9]
    assert second.keys() == {"errors"}


def test_errors_of_a_view_can_be_those_of_one_job(stand: Stand) -> None:
    stand.view_status.row_errors = [error(1), error(9, "k")]
    shown = stand.get(f"{VIEW}/errors?job_id=k").json()["errors"]
    assert [one["row_id"] for one in shown] == [9]


def test_lineage_tells_each_step_and_what_was_dropped(stand: Stand) -> None:
    assert stand.get("/api/v1/tables/docs$words/lineage").json() == {
        "object": ["docs", "words"],
        "kind": "view",
        "column": None,
        "upstream": [
            {
                "object": ["docs", "pages"],
                "kind": "table",
                "column": "text",
                "through": "chunker",
                "function": {"name": "words", "digest": "sha256:0"},
                "depth": 1,
            },
            {
                "object": ["gone"],
                "kind": "dropped",
                "column": None,
                "through": "projection",
                "function": None,
                "depth": 2,
            },
        ],
        "downstream": [],
    }


def test_lineage_of_a_column_is_asked_for_by_its_name(stand: Stand) -> None:
    assert stand.get("/api/v1/tables/docs$words/lineage?column=a%20b").json()["column"] == "a b"
    assert stand.lineage.asked == ["a b"]
