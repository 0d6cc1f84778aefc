"""Routes of jobs: list, get, wait, pause, resume, cancel, events."""

from __future__ import annotations

import time
from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.identifiers import TableIdent, table_ident
from tidemill.catalog.model.json_values import Choice, read_choice
from tidemill.errors import InvalidInput
from tidemill.jobs.model.jobs import Job, JobKind
from tidemill.jobs.model.state import JobState
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import query_integer
from tidemill.protocols.http.identifiers import DEFAULT_DELIMITER, delimiter_of, split_id
from tidemill.protocols.http.responses import json_response, without_nulls
from tidemill.protocols.http.routing import Route
from tidemill.protocols.management.mapping import event_json, job_json, listed_job_json, page_limit

MAX_WAIT_SECONDS: Final = 30.0


def list_jobs(call: Call) -> Response:
    limit = page_limit(call)
    jobs = call.operations.jobs.list_recent(
        call.caller,
        call.query.get("page_token") or None,
        limit + 1,
        table=_table(call),
        kind=_choice(call, JobKind, "kind"),
        state=_choice(call, JobState, "state"),
    )
    token = jobs[limit - 1].job_id if len(jobs) > limit else None
    return json_response(
        without_nulls({"jobs": [listed_job_json(job) for job in jobs[:limit]], "page_token": token})
    )


def get_job(call: Call) -> Response:
    deadline = time.monotonic() + _wait_seconds(call)
    job = _find(call)
    while not job.state.is_final and (left := deadline - time.monotonic()) > 0:
        call.operations.jobs.changes.wait_for_end(job.job_id, left)
        job = _find(call)
    return json_response(job_json(job))


def cancel_job(call: Call) -> Response:
    return json_response(job_json(call.operations.jobs.cancel(call.caller, call.parameters["job_id"])))


def pause_job(call: Call) -> Response:
    return json_response(job_json(call.operations.jobs.pause(call.caller, call.parameters["job_id"])))


def resume_job(call: Call) -> Response:
    return json_response(job_json(call.operations.jobs.resume(call.caller, call.parameters["job_id"])))


def list_job_events(call: Call) -> Response:
    after = query_integer(call.query, "after") or 0
    events = call.operations.jobs.events(call.caller, call.parameters["job_id"], after)
    return json_response({"events": [event_json(event) for event in events]})


def _table(call: Call) -> TableIdent | None:
    """Accepts dots between the levels, as people write them, and the delimiter of paths."""
    raw = call.query.get("table")
    if not raw:
        return None
    is_dotted = "delimiter" not in call.query and DEFAULT_DELIMITER not in raw
    return table_ident(split_id(raw, "." if is_dotted else delimiter_of(call)), "table")


def _choice(call: Call, choices: type[Choice], key: str) -> Choice | None:
    raw = call.query.get(key)
    return read_choice(choices, raw, key) if raw else None


def _find(call: Call) -> Job:
    return call.operations.jobs.get(call.caller, call.parameters["job_id"])


def _wait_seconds(call: Call) -> float:
    raw = call.query.get("wait_seconds") or "0"
    try:
        seconds = float(raw)
    except ValueError as error:
        raise InvalidInput("wait_seconds", f"must be a number, not {raw!r:.60}") from error
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        raise InvalidInput("wait_seconds", f"must be between 0 and {MAX_WAIT_SECONDS:g}")
    return seconds


ROUTES: Final = (
    Route("GET", "/api/v1/jobs", list_jobs),
    Route("GET", "/api/v1/jobs/{job_id}", get_job, is_waiting=True),
    Route("POST", "/api/v1/jobs/{job_id}/cancel", cancel_job),
    Route("POST", "/api/v1/jobs/{job_id}/pause", pause_job),
    Route("POST", "/api/v1/jobs/{job_id}/resume", resume_job),
    Route("GET", "/api/v1/jobs/{job_id}/events", list_job_events),
)
