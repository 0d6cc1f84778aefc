"""Waiting for jobs, against a server that answers from a list."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tidemill.jobs.model.jobs import JobState
from tidemill.sdk import jobs
from tidemill.sdk.errors import JobCancelled, JobFailed, NotFound, ServerUnreachable, WaitTimedOut
from tidemill.sdk.http import ServerClient
from tidemill.sdk.jobs import Job, JobEvent, get_job, note

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
    with pytest.raises(WaitTimedOut, match="is RUNNING after 0 s; it continues"):
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
    with pytest.raises(ServerUnreachable, match="No response from http://lake"):
        get_job(ServerClient("http://lake", transport=httpx.MockTransport(silent)), "j1")


def test_a_job_tells_where_it_runs_and_how_fast() -> None:
    job = ScriptedServer({"branch": "next", "cluster": "gpu", "rows_per_second": 8, "eta_seconds": 90}).job()
    assert (job.branch, job.cluster, job.rows_per_second) == ("next", "gpu", 8.0)
    assert job.eta == timedelta(minutes=1, seconds=30)


def test_a_speed_that_nobody_knows_is_none() -> None:
    job = ScriptedServer({}).job()
    assert (job.rows_per_second, job.eta) == (None, None)


def test_a_paused_job_is_waited_for() -> None:
    server = ScriptedServer({}, {"state": "PAUSED"}, {"state": "QUEUED"}, {"state": "DONE"})
    assert server.job().wait().state is JobState.DONE


@pytest.mark.parametrize(("action", "state"), [("pause", "PAUSED"), ("resume", "QUEUED")])
def test_pause_and_resume_ask_the_server(action: str, state: str) -> None:
    server = ScriptedServer({}, {"state": state})
    job = server.job()
    assert getattr(job, action)() is job
    assert job.state == state
    assert [(request.method, request.url.path) for request in server.requests][1:] == [
        ("POST", f"/api/v1/jobs/j1/{action}")
    ]


class StreamingServer:
    """Answers each request for the job's events with the next stream of the script."""

    def __init__(self, *streams: str) -> None:
        self._streams = list(streams)
        self.after: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/watch"):
            return httpx.Response(200, json=BODY)
        assert request.headers["accept"] == "text/event-stream"
        self.after.append(request.headers.get("last-event-id"))
        return httpx.Response(200, text=self._streams.pop(0), headers={"content-type": "text/event-stream"})

    def job(self) -> Job:
        return get_job(ServerClient("http://lake", transport=httpx.MockTransport(self)), "j1")


def job_event(**state: Any) -> str:
    return f"event: job\ndata: {json.dumps({**BODY, **state})}\n\n"


def log_event(sequence: int) -> str:
    data = {"sequence": sequence, "at": "2030-01-02T03:04:05Z", "kind": "claimed", "data": {}}
    return f"event: log\ndata: {json.dumps(data)}\n\n"


def test_watching_gives_every_state_up_to_the_last() -> None:
    server = StreamingServer(job_event() + ": still here\n\n" + job_event(state="FAILED"))
    job = server.job()
    assert [snapshot.state for snapshot in job.watch()] == [JobState.RUNNING, JobState.FAILED]
    assert job.state is JobState.FAILED


def test_watching_goes_on_when_the_stream_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "RECONNECT_SECONDS", 0)
    streams = [job_event() + log_event(1), log_event(1) + log_event(2) + job_event(state="DONE")]
    seen: list[JobEvent] = []
    server = StreamingServer(*streams)
    states = [snapshot.state for snapshot in server.job().watch(seen.append)]
    assert states == [JobState.RUNNING, JobState.DONE]
    assert server.after == [None, "1"]
    assert [event.sequence for event in seen] == [1, 2]


def test_watching_a_job_that_is_not_there_is_refused() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        return httpx.Response(404, json={"error": {"code": "job_not_found", "message": "no j1"}})

    job = Job(ServerClient("http://lake", transport=httpx.MockTransport(refuse)), BODY)
    with pytest.raises(NotFound, match="no j1"):
        next(job.watch())
