"""Backfills over a socket: options, previews, skipped rows, how fresh columns are, and jobs as streams."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pyarrow as pa
import pytest

import tidemill
from tests.conftest import RunningServer, start_server
from tests.protocol.wire import TableOnWire, stream

ROWS = 6
# Within this a server has to be gone, whoever listens to it.
STOP_SECONDS = 20


@tidemill.udf
def inverse(x: int) -> float:
    return 1 / (x - 2)


@tidemill.udf
def patient(x: int) -> int:
    import time  # only what is inside a function travels with it

    time.sleep(0.2)
    return x


@pytest.fixture(scope="module")
def lake_of_numbers(lake: tidemill.Lake) -> tidemill.Table:
    lake.create_namespace("surface")
    return lake.create_table("surface.numbers", pa.table({"x": list(range(ROWS))}))


@pytest.fixture(scope="module")
def numbers(http: httpx.Client, lake_of_numbers: tidemill.Table) -> TableOnWire:
    """A table with a column whose function fails on one row, skipped there by a job that has ended."""
    table = TableOnWire(http, "surface", "numbers")
    lake_of_numbers.add_column("inverse", inverse)
    body = {"column": "inverse", "on_error": {"action": "skip", "max_skipped": 1}, "task_size": 2}
    assert job(http, backfill(table, body))["state"] == "DONE"
    return table


def backfill(table: TableOnWire, body: dict[str, Any]) -> str:
    answer = table.post("backfill_column", body)
    assert answer.status_code == 202, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


def job(http: httpx.Client, job_id: str) -> dict[str, Any]:
    """The job when it has ended."""
    body: dict[str, Any] = {"state": "QUEUED"}
    while body["state"] in ("QUEUED", "RUNNING"):
        body = http.get(f"/api/v1/jobs/{job_id}", params={"wait_seconds": 30}).json()
    return body


def asked(http: httpx.Client, path: str, **params: Any) -> Any:
    answer = http.get(f"/api/v1/tables/surface$numbers/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(response: httpx.Response) -> Iterator[tuple[str, Any]]:
    kind = ""
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def test_a_column_tells_which_rows_are_fresh_and_which_failed(
    http: httpx.Client, numbers: TableOnWire
) -> None:
    status = asked(http, "columns/inverse/status")
    assert (status["rows"], status["fresh"], status["failed"]) == (ROWS, ROWS - 1, 1)
    assert (status["stale"], status["missing"], status["branch"]) == (0, 0, "main")
    (function,) = status["functions"]
    assert (function["name"], function["is_current"]) == ("inverse", True)
    assert asked(http, "columns/inverse/rows", selection="failed") == {"row_ids": [2]}
    assert asked(http, "columns/inverse/rows", selection="missing") == {"row_ids": []}


def test_a_skipped_row_is_told_with_what_was_raised(http: httpx.Client, numbers: TableOnWire) -> None:
    (error,) = asked(http, "errors", column="inverse")["errors"]
    assert (error["column"], error["row_id"], error["skipped"]) == ("inverse", 2, True)
    assert (error["exception"], error["attempts"]) == ("ZeroDivisionError", 1)
    assert "inverse" in error["traceback"]
    assert asked(http, "errors", job_id=error["job_id"])["errors"] == [error]
    assert asked(http, "errors", job_id="nobody")["errors"] == []


def test_lancedb_is_told_of_the_skipped_row_too(http: httpx.Client, numbers: TableOnWire) -> None:
    body = numbers.asked("errors", {"column": "inverse"})
    (record,) = body["records"]
    assert (record["fragment_id"], record["row_offset"], record["function"]) == (0, 2, "inverse")
    assert (record["error_type"], body["truncated"]) == ("ZeroDivisionError", False)
    assert numbers.asked("errors", {"limit": 0}) == {"records": [], "fragments": [], "truncated": True}
    assert numbers.asked("errors", {"column": "x"})["records"] == []
    described = http.post("/v1/jobs/describe", json={"job_id": record["job_id"]}).json()
    assert described["result"]["rows_failed"] == 1


def test_failed_rows_are_tried_again(http: httpx.Client, numbers: TableOnWire) -> None:
    body = {"column": "inverse", "retry_failed": True, "on_error": "skip"}
    explained = http.post("/api/v1/tables/surface$numbers/explain", json=body).json()
    assert explained["rows"] == 1
    ended = job(http, backfill(numbers, body))
    assert (ended["state"], ended["progress"]["skipped"]) == ("DONE", 1)


def test_a_plan_says_how_long_it_takes_and_what_is_in_its_way(
    http: httpx.Client, numbers: TableOnWire
) -> None:
    plan = http.post("/api/v1/tables/surface$numbers/explain", json={"column": "inverse"}).json()
    assert (plan["rows"], plan["tasks"], plan["expected_seconds"], plan["conflicts"]) == (0, 0, 0.0, [])


def test_a_preview_shows_rows_and_publishes_nothing(http: httpx.Client, numbers: TableOnWire) -> None:
    before = numbers.numbers()
    answer = http.post("/api/v1/tables/surface$numbers/preview", json={"column": "inverse", "rows": 2})
    assert answer.status_code == 202, answer.text
    ended = job(http, answer.json()["job_id"])
    assert (ended["state"], ended["kind"]) == ("DONE", "preview")
    assert ended["result"]["arrow"]
    assert numbers.numbers() == before
    listed = http.get("/api/v1/jobs", params={"kind": "preview", "table": "surface.numbers"}).json()["jobs"]
    assert "arrow" not in listed[0]["result"]
    described = http.post("/v1/jobs/describe", json={"job_id": ended["job_id"]}).json()
    assert (described["job_type"], described["job_state"]) == ("preview", "DONE")


def test_jobs_are_found_by_table_kind_and_state(http: httpx.Client, numbers: TableOnWire) -> None:
    params = {"table": "surface.numbers", "kind": "backfill", "state": "DONE"}
    found = http.get("/api/v1/jobs", params=params).json()["jobs"]
    assert found
    assert {entry["column"] for entry in found} == {"inverse"}
    assert http.get("/api/v1/jobs", params={**params, "state": "PAUSED"}).json() == {"jobs": []}
    assert http.get("/api/v1/jobs", params={"table": "surface.nowhere"}).status_code == 404


def test_a_branch_is_filled_on_its_own(http: httpx.Client, numbers: TableOnWire) -> None:
    assert numbers.post("branches/create", {"name": "dev"}).status_code == 200
    numbers.asked("insert", content=stream(pa.table({"x": [100]})), params={"branch": "dev"})
    before = numbers.numbers()
    ended = job(http, backfill(numbers, {"column": "inverse", "branch": "dev", "on_error": "skip"}))
    assert (ended["state"], ended["branch"]) == ("DONE", "dev")
    assert numbers.numbers() == before
    assert asked(http, "columns/inverse/status", branch="dev")["rows"] == ROWS + 1


def test_a_manifest_is_kept_for_jobs(http: httpx.Client, numbers: TableOnWire) -> None:
    path = "/api/v1/manifests/surface"
    assert http.put(path, json={"env_vars": {"TOKEN": "hidden"}}).status_code == 200
    assert http.get(path).json() == {"name": "surface", "pip": [], "env_vars": ["TOKEN"]}
    ended = job(http, backfill(numbers, {"column": "inverse", "manifest": "surface"}))
    assert ended["state"] == "DONE"
    assert "hidden" not in http.get("/api/v1/jobs").text
    assert http.delete(path).status_code == 200
    assert http.delete(path).is_client_error


@pytest.mark.timeout(120)
def test_a_job_is_watched_until_it_ends(
    http: httpx.Client, lake_of_numbers: tidemill.Table, numbers: TableOnWire
) -> None:
    lake_of_numbers.add_column("patient", patient)
    job_id = backfill(numbers, {"column": "patient"})
    with http.stream("GET", f"/api/v1/jobs/{job_id}/watch") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        told = list(events(response))
    states = [data["state"] for kind, data in told if kind == "job"]
    assert states[0] in ("QUEUED", "RUNNING")
    assert states[-1] == "DONE"
    assert next(data["kind"] for kind, data in told if kind == "log") == "submitted"
    assert told[-1][1] == job(http, job_id)


def test_a_server_with_watchers_stops_in_time(tmp_path_factory: pytest.TempPathFactory) -> None:
    running: RunningServer = start_server(tmp_path_factory.mktemp("watched"), "--no-worker")
    lake = tidemill.connect(running.url)
    table = lake.create_table("numbers", pa.table({"x": [1]}))
    table.add_column("inverse", inverse)
    job_id = table.backfill("inverse").id
    is_watching = threading.Event()

    def listen() -> None:
        with (
            httpx.Client(base_url=running.url, timeout=60) as client,
            suppress(httpx.TransportError),
            client.stream("GET", f"/api/v1/jobs/{job_id}/watch") as response,
        ):
            for _ in events(response):
                is_watching.set()

    watcher = threading.Thread(target=listen, daemon=True)
    watcher.start()
    assert is_watching.wait(30)
    started = time.monotonic()
    running.stop()
    assert time.monotonic() - started < STOP_SECONDS
    watcher.join(10)
    assert not watcher.is_alive()
