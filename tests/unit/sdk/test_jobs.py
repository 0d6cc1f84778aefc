"""Waiting for jobs, against a server that answers from a list."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tidemill.jobs.model.state import JobState
from tidemill.sdk.errors import JobCancelled, JobFailed, NotFound, ServerUnreachable, WaitTimedOut
from tidemill.sdk.http import ServerClient
from tidemill.sdk.jobs import Job, get_job
from tidemill.sdk.progress import note

BODY: dict[str, Any] = {
    "job_id": "j1",
    "kind": "backfill",
    "table": ["library", "docs"],
    "column": "words",
    "state": "RUNNING",
    "progress": {"total": 10, "done": 4, "computed": 4, "something_new": 1},
    "created_at": "2030-01-02T03:04:05Z",
    "result": None,
    "failure": None,
}


class ScriptedServer:
    """Answers every request for the job with the next state of the script, then the last one for ever."""

    def __init__(self, *states: dict[str, Any]) -> None:
        self.requests: list[httpx.Request] = []
        self._states = list(states)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        return httpx.Response(200, json={**BODY, **state})

    def job(self) -> Job:
        return get_job(ServerClient("http://lake", transport=httpx.MockTransport(self)), "j1")


def test_a_job_tells_what_the_server_said() -> None:
    job = ScriptedServer({}).job()
    assert (job.id, job.state, job.description) == ("j1", JobState.RUNNING, "backfill library.docs.words")
    assert (job.progress.total, job.progress.done, job.progress.reused) == (10, 4, 0)
    assert job.created_at is not None
    assert job.created_at.tzinfo is not None


def test_waiting_ends_with_the_job() -> None:
    server = ScriptedServer({}, {}, {"state": "DONE", "result": {"version": 7}})
    assert server.job().wait().result == {"version": 7}
    assert [request.url.params.get("wait_seconds") for request in server.requests] == [None, "30", "30"]


def test_a_failure_carries_exception_traceback_and_row() -> None:
    failure = {
        "message": "row 17: ValueError: no",
        "exception": "ValueError",
        "traceback": "Traceback: …",
        "row_id": 17,
    }
    with pytest.raises(JobFailed, match="Job j1 failed: row 17: ValueError: no") as caught:
        ScriptedServer({"state": "FAILED", "failure": failure}).job().wait()
    assert (caught.value.exception, caught.value.traceback, caught.value.row_id) == (
        "ValueError",
        "Traceback: …",
        17,
    )


def test_a_cancelled_job_says_so() -> None:
    with pytest.raises(JobCancelled):
        ScriptedServer({"state": "CANCELLED"}).job().wait()


def test_waiting_can_end_before_the_job() -> None:
    with pytest.raises(WaitTimedOut, match="is RUNNING after 0 s; it goes on"):
        ScriptedServer({}).job().wait(timeout=0)


def test_a_progress_bar_changes_nothing_about_the_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    server = ScriptedServer({}, {"state": "DONE", "progress": {"total": 10, "done": 10, "computed": 10}})
    assert server.job().wait(progress=True).state is JobState.DONE
    printed = capsys.readouterr()
    assert "10/10" in printed.err
    assert printed.out == ""


def test_the_note_names_only_what_happened() -> None:
    job = ScriptedServer({"progress": {"computed": 1200, "removed": 3}}).job()
    assert note(job.state, job.progress) == "running: 1,200 computed, 3 removed"


def test_cancel_asks_the_server() -> None:
    server = ScriptedServer({}, {}, {"state": "CANCELLED"})
    assert server.job().cancel().state is JobState.CANCELLED
    assert [(request.method, request.url.path) for request in server.requests][1] == (
        "POST",
        "/api/v1/jobs/j1/cancel",
    )


def test_a_refusal_is_raised_and_a_silent_server_too() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            404, content=json.dumps({"error": {"code": "job_not_found", "message": "no j1"}})
        )

    def silent(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(NotFound, match="no j1"):
        get_job(ServerClient("http://lake", transport=httpx.MockTransport(refuse)), "j1")
    with pytest.raises(ServerUnreachable, match="No answer from http://lake"):
        get_job(ServerClient("http://lake", transport=httpx.MockTransport(silent)), "j1")
