"""Jobs as streams of events."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.protocols.stand import Stand
from tests.unit.protocols.stand_jobs import SOME_TIME, some_job
from tidemill.catalog.model.identifiers import table_ident
from tidemill.errors import Unavailable
from tidemill.jobs.model.jobs import Job, JobState, Progress
from tidemill.jobs.model.options import BackfillRequest
from tidemill.protocols.management.routes import jobs

RUNNING = some_job("j", table_ident(("docs", "pages")), BackfillRequest("size"), JobState.RUNNING)
PATIENCE_SECONDS = 30
DONE = replace(RUNNING, state=JobState.DONE)


@pytest.fixture
def stand() -> Stand:
    made = Stand()
    made.jobs.put(RUNNING)
    return made


def events(text: str) -> Iterator[tuple[str, str | None, Any]]:
    """The kind, id and data of each."""
    for block in filter(None, text.split("\n\n")):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if lines:
            yield lines["event"], lines.get("id"), json.loads(lines["data"])


def states(text: str) -> list[str]:
    return [data["state"] for kind, _, data in events(text) if kind == "job"]


def later(stand: Stand, *steps: Callable[[], object], looks: int = 4) -> threading.Thread:
    """Takes the first step after so many looks of the stream, the others when it has seen the one before.

    A snapshot takes two looks, and a quiet stream takes two snapshots at first.
    """

    def take() -> None:
        for step in steps:
            await_looks(stand, looks if step is steps[0] else 2)
            step()

    thread = threading.Thread(target=take)
    thread.start()
    return thread


def await_looks(stand: Stand, looks: int) -> None:
    wanted, give_up_at = stand.jobs.looks + looks, time.monotonic() + PATIENCE_SECONDS
    while stand.jobs.looks < wanted and time.monotonic() < give_up_at:
        time.sleep(0.005)


def putting(stand: Stand, job: Job) -> Callable[[], object]:
    return lambda: stand.jobs.put(job)


def failing(stand: Stand, fault: Exception | None) -> Callable[[], object]:
    return lambda: setattr(stand.jobs, "fault", fault)


def test_a_job_that_is_over_is_told_at_once_with_its_log(stand: Stand) -> None:
    stand.jobs.put(DONE)
    answer = stand.get("/api/v1/jobs/j/watch")
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = list(events(answer.text))
    assert [(kind, number) for kind, number, _ in told] == [("log", "1"), ("log", "2"), ("job", None)]
    assert told[0][2] == {
        "sequence": 1,
        "at": "2026-01-02T03:04:05Z",
        "kind": "progress",
        "data": {"done": 1},
    }
    assert told[2][2] == stand.get("/api/v1/jobs/j").json()


def test_a_job_is_told_whenever_it_changes(stand: Stand) -> None:
    halfway = replace(RUNNING, progress=Progress(total=2, done=1))
    thread = later(stand, putting(stand, halfway), putting(stand, DONE))
    text = stand.get("/api/v1/jobs/j/watch").text
    thread.join()
    assert states(text) == ["RUNNING", "RUNNING", "DONE"]
    assert len([kind for kind, _, _ in events(text) if kind == "log"]) == 2


def test_signs_of_life_are_no_news(stand: Stand) -> None:
    alive = replace(RUNNING, updated_at=SOME_TIME, lease_until_at=SOME_TIME)
    thread = later(stand, putting(stand, alive), putting(stand, DONE))
    text = stand.get("/api/v1/jobs/j/watch").text
    thread.join()
    assert states(text) == ["RUNNING", "DONE"]


@pytest.mark.parametrize(("last", "ids"), [("1", ["2"]), ("2", []), ("0", ["1", "2"])])
def test_the_log_goes_on_where_a_reader_stopped(stand: Stand, last: str, ids: list[str]) -> None:
    stand.jobs.put(DONE)
    text = stand.get("/api/v1/jobs/j/watch", headers={"last-event-id": last}).text
    assert [number for kind, number, _ in events(text) if kind == "log"] == ids
    assert states(text) == ["DONE"]


@pytest.mark.parametrize("last", ["x", "-1", "1" * 30])
def test_an_id_that_no_event_had_is_refused(stand: Stand, last: str) -> None:
    answer = stand.get("/api/v1/jobs/j/watch", headers={"last-event-id": last})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_input")


def test_a_job_that_is_not_there_is_not_watched(stand: Stand) -> None:
    assert stand.get("/api/v1/jobs/x/watch").status_code == 404


def test_a_quiet_stream_is_kept_open(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "KEEP_ALIVE_SECONDS", 0.05)
    # So many looks take longer than that.
    thread = later(stand, putting(stand, DONE), looks=10)
    text = stand.get("/api/v1/jobs/j/watch").text
    thread.join()
    assert ": still here\n\n" in text
    assert states(text) == ["RUNNING", "DONE"]


def test_a_database_that_does_not_answer_is_asked_again(stand: Stand) -> None:
    steps = failing(stand, Unavailable("busy")), failing(stand, None), putting(stand, DONE)
    thread = later(stand, *steps)
    text = stand.get("/api/v1/jobs/j/watch").text
    thread.join()
    assert states(text) == ["RUNNING", "DONE"]


def test_a_job_that_is_gone_ends_the_stream_with_the_reason(stand: Stand) -> None:
    thread = later(stand, stand.jobs.jobs.clear)
    told = list(events(stand.get("/api/v1/jobs/j/watch").text))
    thread.join()
    assert told[-1][0] == "error"
    assert told[-1][2]["code"] == "job_not_found"
