"""`tidemill jobs …`."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.unit.cli.running import CommandLine
from tests.unit.sdk.noting import JOB

RUNNING = {
    **JOB,
    "state": "RUNNING",
    "branch": "next",
    "cluster": "gpu",
    "rows_per_second": 8.0,
    "eta_seconds": 200,
}


def test_jobs_are_listed_by_table_kind_and_state(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, jobs={"jobs": [JOB]})
    listed = line.json("jobs", "list", "--table", "library.docs", "--kind", "backfill", "--state", "done")
    assert listed == [JOB]
    asked = dict(line.server.requests[0].url.params)
    assert asked == {
        "table": "library$docs",
        "delimiter": "$",
        "kind": "backfill",
        "state": "DONE",
        "limit": "20",
    }


def test_a_list_shows_which_jobs_skipped_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    said = CommandLine(monkeypatch, jobs={"jobs": [RUNNING, JOB]}).printed("jobs", "list")
    assert said.count("DONE, 6 rows skipped") == 1
    assert "see 'tidemill errors TABLE --job JOB'" in said


def test_a_list_without_skipped_rows_gives_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "errors" not in CommandLine(monkeypatch, jobs={"jobs": [RUNNING]}).printed("jobs", "list")


def test_an_empty_list_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, jobs={"jobs": []})
    assert line.printed("jobs", "list") == "No jobs yet\n"
    assert line.printed("jobs", "list", "--kind", "preview") == "No jobs match\n"


def test_a_job_shows_where_it_runs_and_how_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    said = CommandLine(monkeypatch, j1=RUNNING).printed("jobs", "show", "j1")
    assert "8 rows/s, 3 min 20 s left" in said
    assert "gpu" in said
    assert "next" in said


def test_a_job_shows_how_to_see_skipped_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    said = CommandLine(monkeypatch, j1={**JOB, "branch": "next"}).printed("jobs", "show", "j1")
    advice = "see 'tidemill errors library.docs words --job j1 --branch next'"
    assert said.endswith(f"DONE, 6 rows skipped; {advice}\n")


@pytest.mark.parametrize(
    ("action", "state", "said"),
    [
        ("pause", "PAUSED", "Job j1 is PAUSED; it stops at its next safe point and can be resumed\n"),
        ("resume", "QUEUED", "Job j1 is QUEUED; watch it with 'tidemill jobs watch j1'\n"),
    ],
)
def test_a_job_is_paused_and_resumed(
    action: str, state: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = CommandLine(monkeypatch, j1=RUNNING, **{action: {**RUNNING, "state": state}})
    assert line.printed("jobs", action, "j1") == said
    assert line.json("jobs", action, "j1")["state"] == state
    assert line.server.asked()[1] == ("POST", f"/api/v1/jobs/j1/{action}")


def test_a_job_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, j1={**JOB, "state": "CANCELLED"})
    assert line.printed("jobs", "cancel", "j1") == "Job j1 is CANCELLED; it stops at its next checkpoint\n"


def test_a_job_is_watched_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, j1=JOB)
    assert "DONE, 6 rows skipped" in line.printed("jobs", "watch", "j1")
    assert line.json("jobs", "watch", "j1") == JOB


def test_what_happens_to_a_job_is_printed_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    log = {"sequence": 1, "at": "2030-01-02T03:04:05Z", "kind": "claimed", "data": {"by": "w1"}}
    stream = f"event: log\ndata: {json.dumps(log)}\n\nevent: job\ndata: {json.dumps(JOB)}\n\n"
    line = CommandLine(monkeypatch, j1=RUNNING)
    monkeypatch.setattr(
        type(line.server),
        "__call__",
        lambda self, request: (
            httpx.Response(200, text=stream)
            if request.url.path.endswith("/watch")
            else httpx.Response(200, json=RUNNING)
        ),
    )
    said = line.printed("jobs", "watch", "j1", "--log").splitlines()
    assert said[0].endswith(' claimed {"by": "w1"}')
    assert said[-1].startswith("DONE, 6 rows skipped")
