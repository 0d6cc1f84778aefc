"""The management API: health, jobs, functions, and what a job would do."""

from __future__ import annotations

from typing import Any

import httpx
import pyarrow as pa
import pytest

import tidemill
from tests.conftest import RunningServer


@tidemill.udf
def shout(text: str) -> str:
    return text.upper()


@tidemill.udf
def whisper(text: str) -> str:
    return text.lower()


@pytest.fixture(scope="module")
def documents(lake: tidemill.Lake) -> tidemill.Table:
    """A table with a computed column that nobody has filled."""
    lake.create_namespace("management")
    table = lake.create_table("management.docs", pa.table({"id": [1, 2], "text": ["a", "b"]}))
    table.add_column("loud", shout)
    return table


@pytest.fixture(scope="module")
def jobs(http: httpx.Client, documents: tidemill.Table) -> list[str]:
    """The ids of three jobs, oldest first, that were cancelled or ran."""
    submitted = []
    for _ in range(3):
        answer = http.post("/v1/table/management$docs/backfill_column", json={"column": "loud"})
        assert answer.status_code == 202
        submitted.append(answer.json()["job_id"])
        http.post("/v1/jobs/cancel", json={"job_id": submitted[-1]})
        state = http.get(f"/api/v1/jobs/{submitted[-1]}", params={"wait_seconds": 30}).json()["state"]
        assert state in ("CANCELLED", "DONE")
    return submitted


def check_refusal(answer: httpx.Response, status: int, code: str, message: str = "") -> None:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code), error
    assert error["request_id"] == answer.headers["x-request-id"]
    assert error["message"].startswith(message)


def pages(http: httpx.Client, limit: int) -> list[list[str]]:
    found: list[list[str]] = []
    token: str | None = None
    while True:
        params: dict[str, Any] = {"limit": limit, **({"page_token": token} if token else {})}
        body = http.get("/api/v1/jobs", params=params).json()
        found.append([job["job_id"] for job in body["jobs"]])
        token = body.get("page_token")
        if token is None:
            return found


def test_the_server_says_how_it_is(http: httpx.Client) -> None:
    answer = http.get("/api/v1/health")
    body = answer.json()
    assert answer.status_code == 200
    assert body.pop("worker") in ("running", "starting")
    works = {"database": True, "storage": True}
    assert body == {
        "status": "ok",
        "version": tidemill.__version__,
        "database": "ok",
        "storage": "ok",
        "reads": works,
        "writes": works,
    }


def test_a_server_without_a_worker_counts_those_of_others(second_server: RunningServer) -> None:
    body = httpx.get(f"{second_server.url}/api/v1/health").json()
    assert body["worker"] in ("running", "absent")


def test_jobs_come_newest_first(http: httpx.Client, jobs: list[str]) -> None:
    listed = [job["job_id"] for job in http.get("/api/v1/jobs").json()["jobs"]]
    assert [job_id for job_id in listed if job_id in jobs] == jobs[::-1]


def test_pages_of_jobs_hold_each_job_once(http: httpx.Client, jobs: list[str]) -> None:
    found = pages(http, limit=2)
    assert all(len(page) == 2 for page in found[:-1])
    flat = [job_id for page in found for job_id in page]
    assert len(flat) == len(set(flat))
    assert [job_id for job_id in flat if job_id in jobs] == jobs[::-1]


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "many"])
def test_a_senseless_page_is_refused(http: httpx.Client, limit: str) -> None:
    check_refusal(http.get("/api/v1/jobs", params={"limit": limit}), 400, "invalid_input", "limit: ")


def test_a_job_tells_what_it_is_about(http: httpx.Client, jobs: list[str]) -> None:
    body = http.get(f"/api/v1/jobs/{jobs[0]}").json()
    assert (body["job_id"], body["kind"], body["table"]) == (jobs[0], "backfill", ["management", "docs"])
    assert (body["column"], body["cancel_requested"], body["submitted_by"]) == ("loud", True, "local")


def test_both_protocols_tell_of_the_same_job(http: httpx.Client, jobs: list[str]) -> None:
    here = http.get(f"/api/v1/jobs/{jobs[0]}").json()
    there = http.post("/v1/jobs/describe", json={"job_id": jobs[0]}).json()
    assert (there["job_id"], there["job_state"], there["job_type"]) == (jobs[0], here["state"], "backfill")
    listed = http.post("/v1/jobs/list", json={}).json()["jobs"]
    assert jobs[0] in {job["job_id"] for job in listed}


def test_events_continue_where_one_has_read_to(http: httpx.Client, jobs: list[str]) -> None:
    events = http.get(f"/api/v1/jobs/{jobs[0]}/events").json()["events"]
    assert events[0]["kind"] == "submitted"
    later = http.get(f"/api/v1/jobs/{jobs[0]}/events", params={"after": events[0]["sequence"]}).json()
    assert later["events"] == events[1:]


def test_events_come_as_an_arrow_stream_too(http: httpx.Client, jobs: list[str]) -> None:
    answer = http.post("/v1/jobs/query_events", json={"job_id": jobs[0], "limit": 1})
    assert pa.ipc.open_stream(answer.content).read_all()["kind"].to_pylist() == ["submitted"]


def test_a_job_that_is_over_cannot_be_cancelled(http: httpx.Client, jobs: list[str]) -> None:
    check_refusal(http.post(f"/api/v1/jobs/{jobs[0]}/cancel"), 409, "invalid_job_transition")


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "x"), ("GET", "x/events"), ("POST", "x/cancel"), ("GET", "%00")]
)
def test_a_missing_job_is_not_found(http: httpx.Client, method: str, path: str) -> None:
    check_refusal(http.request(method, f"/api/v1/jobs/{path}"), 404, "job_not_found")


@pytest.mark.parametrize("seconds", ["-1", "31", "soon", "nan"])
def test_a_senseless_wait_is_refused(http: httpx.Client, jobs: list[str], seconds: str) -> None:
    answer = http.get(f"/api/v1/jobs/{jobs[0]}", params={"wait_seconds": seconds})
    check_refusal(answer, 400, "invalid_input", "wait_seconds: ")


def test_a_registered_function_is_listed_without_its_code(lake: tidemill.Lake, http: httpx.Client) -> None:
    digest = lake.register(whisper)
    assert lake.register(whisper) == digest
    listed = [
        entry for entry in http.get("/api/v1/functions").json()["functions"] if entry["digest"] == digest
    ]
    assert len(listed) == 1
    whole = {"name", "digest", "kind", "parameters", "output", "python", "stateful"}
    assert listed[0].keys() == whole | {"namespace", "version", "owner"}
    assert (listed[0]["name"], listed[0]["parameters"]) == ("whisper", ["text"])
    assert listed[0]["output"] == {"value": "string"}


def test_a_plan_is_told_without_doing_it(http: httpx.Client, documents: tidemill.Table, lake: Any) -> None:
    fresh = lake.create_table("management.plans", pa.table({"id": [1, 2], "text": ["a", "b"]}))
    fresh.add_column("loud", shout)
    answer = http.post("/api/v1/tables/management$plans/explain", json={"column": "loud"})
    body = answer.json()
    assert (answer.status_code, body["rows"], body["fragments"]) == (200, 2, 1)
    assert fresh.to_arrow()["loud"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("tables/management$nowhere", {"column": "loud"}, 404, "table_not_found"),
        ("tables/management$docs", {"column": "id"}, 400, "invalid_input"),
        ("tables/management$docs", {}, 400, "invalid_input"),
        ("tables/management$docs", {"column": "loud", "surprise": 1}, 400, "invalid_input"),
        ("tables/management$docs", {"column": "loud", "concurrency": -1}, 400, "invalid_input"),
        ("tables/management$docs", {"column": "loud", "where": "id = 1;"}, 400, "invalid_input"),
        ("tables/management$docs", {"column": "loud", "where": "nowhere = 1"}, 400, "invalid_input"),
        ("tables/management$docs", {"column": "nowhere"}, 404, "table_column_not_found"),
        ("tables/management$docs", {"column": "loud", "read_version": 99}, 400, "invalid_input"),
        ("views/management$docs", {}, 404, "view_not_found"),
        ("views/management$nowhere", {}, 404, "table_not_found"),
        ("views/management$docs", {"surprise": 1}, 400, "invalid_input"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(
    http: httpx.Client, documents: tidemill.Table, path: str, body: Any, status: int, code: str
) -> None:
    check_refusal(http.post(f"/api/v1/{path}/explain", json=body), status, code)


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_a_plan_of_no_json_is_refused(http: httpx.Client, documents: tidemill.Table, content: bytes) -> None:
    answer = http.post("/api/v1/tables/management$docs/explain", content=content)
    check_refusal(answer, 400, "invalid_input", "body: ")


@pytest.mark.parametrize("path", ["/api", "/api/v1", "/api/v1/nowhere", "/api/v2/health"])
def test_an_unknown_route_has_the_form_of_this_protocol(http: httpx.Client, path: str) -> None:
    check_refusal(http.get(path), 404, "route_not_found")


def test_a_wrong_method_is_told_the_right_one(http: httpx.Client) -> None:
    answer = http.post("/api/v1/health")
    check_refusal(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET"
