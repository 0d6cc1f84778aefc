"""The management API."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.unit.protocols.envelopes import LENGTH
from tests.unit.protocols.stand import Stand
from tests.unit.protocols.stand_jobs import SOME_TIME, some_job
from tidemill.catalog.model.functions import encode_envelope
from tidemill.catalog.model.identifiers import table_ident
from tidemill.jobs.model.jobs import Failure, Job, JobState, Progress
from tidemill.jobs.model.options import BackfillRequest, PreviewRequest, RefreshRequest
from tidemill.protocols.http.operations import HealthReport

PAGES = table_ident(("docs", "pages"))


def job(job_id: str = "j", state: JobState = JobState.RUNNING) -> Job:
    return some_job(job_id, PAGES, BackfillRequest("size"), state)


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_health_tells_of_every_part(stand: Stand) -> None:
    answer = stand.get("/api/v1/health")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ok",
        "version": "0.1.0",
        "worker": "running",
        "database": "ok",
        "storage": "ok",
        "reads": {"database": True, "storage": True},
        "writes": {"database": True, "storage": True},
    }


def test_health_is_bad_without_a_database_and_not_without_a_worker(stand: Stand) -> None:
    fine = {"database": True, "storage": True}
    stand.health.report = HealthReport("degraded", "0.1.0", "absent", "ok", "ok", fine, fine)
    assert stand.get("/api/v1/health").status_code == 200
    stand.health.report = replace(stand.health.report, database="does not answer")
    assert stand.get("/api/v1/health").status_code == 503


def test_a_function_is_registered_and_listed_without_its_code(stand: Stand) -> None:
    answer = stand.post("/api/v1/functions", content=encode_envelope(LENGTH))
    assert answer.status_code == 200
    assert answer.json()["digest"] == LENGTH.digest
    (listed,) = stand.get("/api/v1/functions").json()["functions"]
    assert listed == answer.json() | {"version": 1, "owner": "local"}
    assert listed["namespace"] == []
    assert "payload" not in listed


def test_what_is_no_function_is_refused(stand: Stand) -> None:
    answer = stand.post("/api/v1/functions", json={"format": "other"}, headers={"x-request-id": "abc-1"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["request_id"]) == ("invalid_input", "abc-1")


def test_a_job_is_shown_whole(stand: Stand) -> None:
    failed = replace(job(state=JobState.FAILED), failure=Failure("bad row", "ValueError", "Traceback…", 7))
    stand.jobs.put(failed)
    assert stand.get("/api/v1/jobs/j").json() == {
        "job_id": "j",
        "kind": "backfill",
        "table": ["docs", "pages"],
        "branch": "main",
        "column": "size",
        "cluster": "default",
        "state": "FAILED",
        "progress": dict.fromkeys(
            ["total", "done", "computed", "reused", "replaced", "removed", "skipped", "written", "commits"], 0
        ),
        "rows_per_second": None,
        "eta_seconds": None,
        "created_at": "2026-01-02T03:04:05Z",
        "started_at": None,
        "finished_at": None,
        "cancel_requested": False,
        "pause_requested": False,
        "submitted_by": "local",
        "epoch": 0,
        "result": None,
        "failure": {"message": "bad row", "exception": "ValueError", "traceback": "Traceback…", "row_id": 7},
    }


def test_a_running_job_tells_how_fast_it_is_and_how_long_it_will_take(stand: Stand) -> None:
    later = SOME_TIME + timedelta(seconds=10)
    going = replace(job(), started_at=SOME_TIME, updated_at=later, progress=Progress(total=100, done=40))
    stand.jobs.put(going)
    body = stand.get("/api/v1/jobs/j").json()
    assert (body["rows_per_second"], body["eta_seconds"]) == (4.0, 15.0)
    stand.jobs.put(replace(going, state=JobState.PAUSED))
    body = stand.get("/api/v1/jobs/j").json()
    assert (body["rows_per_second"], body["eta_seconds"]) == (4.0, None)


def test_a_job_tells_where_it_works(stand: Stand) -> None:
    request = BackfillRequest("size", branch="dev", cluster="gpu")
    stand.jobs.put(replace(some_job("j", PAGES, request), cluster="gpu"))
    body = stand.get("/api/v1/jobs/j").json()
    assert (body["branch"], body["cluster"]) == ("dev", "gpu")


def test_the_rows_of_a_preview_come_with_the_job_and_not_with_the_list(stand: Stand) -> None:
    shown = some_job("p", PAGES, PreviewRequest("size", 10), JobState.DONE)
    stand.jobs.put(replace(shown, result={"arrow": "AAAA", "rows_previewed": 10}))
    (listed,) = stand.get("/api/v1/jobs").json()["jobs"]
    assert listed["result"] == {"rows_previewed": 10}
    assert stand.get("/api/v1/jobs/p").json()["result"]["arrow"] == "AAAA"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["j2", "j1", "j0"]),
        ("table=docs.pages", ["j2", "j0"]),
        ("table=docs$pages", ["j2", "j0"]),
        ("table=docs:pages&delimiter=:", ["j2", "j0"]),
        ("kind=refresh", ["j1"]),
        ("state=DONE", ["j2"]),
        ("state=done&kind=backfill&table=docs.pages", ["j2"]),
        ("state=FAILED", []),
    ],
)
def test_a_list_is_of_the_jobs_asked_for(stand: Stand, query: str, found: list[str]) -> None:
    stand.jobs.put(job("j0"))
    stand.jobs.put(some_job("j1", table_ident(("docs", "words")), RefreshRequest()))
    stand.jobs.put(job("j2", JobState.DONE))
    assert [entry["job_id"] for entry in stand.get(f"/api/v1/jobs?{query}").json()["jobs"]] == found


@pytest.mark.parametrize(
    ("field", "value"), [("table", "a..b"), ("kind", "x"), ("state", "x"), ("limit", "0")]
)
def test_a_senseless_filter_is_refused(stand: Stand, field: str, value: str) -> None:
    answer = stand.get(f"/api/v1/jobs?{field}={value}")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(f"{field}: ")


def test_a_job_is_paused_and_resumed(stand: Stand) -> None:
    stand.jobs.put(job())
    assert stand.post("/api/v1/jobs/j/pause").json()["pause_requested"] is True
    assert stand.post("/api/v1/jobs/j/resume").json()["pause_requested"] is False
    assert stand.post("/api/v1/jobs/x/pause").status_code == 404


def test_waiting_ends_when_the_job_does(stand: Stand) -> None:
    stand.jobs.put(job())
    ending = threading.Timer(0.1, stand.jobs.put, [job(state=JobState.DONE)])
    ending.start()
    started = time.monotonic()
    assert stand.get("/api/v1/jobs/j?wait_seconds=20").json()["state"] == "DONE"
    assert time.monotonic() - started < 10
    ending.join()


def test_waiting_ends_when_the_time_is_over(stand: Stand) -> None:
    stand.jobs.put(job())
    assert stand.get("/api/v1/jobs/j?wait_seconds=0.05").json()["state"] == "RUNNING"


@pytest.mark.parametrize("seconds", ["31", "-1", "nan", "soon"])
def test_nobody_waits_for_ever(stand: Stand, seconds: str) -> None:
    stand.jobs.put(job())
    assert stand.get(f"/api/v1/jobs/j?wait_seconds={seconds}").status_code == 400


def test_jobs_are_listed_newest_first_in_pages(stand: Stand) -> None:
    for number in range(3):
        stand.jobs.put(job(f"j{number}"))
    first = stand.get("/api/v1/jobs?limit=2").json()
    assert [entry["job_id"] for entry in first["jobs"]] == ["j2", "j1"]
    second = stand.get(f"/api/v1/jobs?limit=2&page_token={first['page_token']}").json()
    assert [entry["job_id"] for entry in second["jobs"]] == ["j0"]
    assert "page_token" not in second


def test_a_job_is_cancelled_and_its_events_are_read_on(stand: Stand) -> None:
    stand.jobs.put(job())
    assert stand.post("/api/v1/jobs/j/cancel").json()["job_id"] == "j"
    (event,) = stand.get("/api/v1/jobs/j/events?after=1").json()["events"]
    assert event == {"sequence": 2, "at": "2026-01-02T03:04:05Z", "kind": "progress", "data": {"done": 2}}


def test_an_unknown_job_is_not_found(stand: Stand) -> None:
    answer = stand.get("/api/v1/jobs/x")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "job_not_found")


def test_a_backfill_is_explained(stand: Stand) -> None:
    answer = stand.post("/api/v1/tables/docs$pages/explain", json={"column": "size"})
    assert answer.json() == {
        "read_version": 3,
        "rows": 15,
        "rows_reused": 2,
        "fragments": 2,
        "tasks": 2,
        "commits": 2,
        "reason": "never computed: size",
        "expected_seconds": None,
        "conflicts": ["job j is filling this column"],
    }


def test_a_senseless_backfill_is_not_explained(stand: Stand) -> None:
    assert (
        stand.post("/api/v1/tables/docs$pages/explain", json={"column": "a", "num_frags": 0}).status_code
        == 400
    )
