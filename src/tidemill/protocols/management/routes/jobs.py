"""Routes of jobs: looking, waiting, cancelling."""

from __future__ import annotations

import time
from typing import Final

from starlette.responses import Response

from tidemill.errors import InvalidInput
from tidemill.jobs.model.jobs import Job
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import query_integer
from tidemill.protocols.http.responses import json_response, without_nulls
from tidemill.protocols.http.routing import Route
from tidemill.protocols.management.mapping import event_json, job_json

DEFAULT_PAGE: Final = 100
MAX_PAGE: Final = 1000
MAX_WAIT_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.02


def list_jobs(call: Call) -> Response:
    limit = query_integer(call.query, "limit")
    limit = DEFAULT_PAGE if limit is None else limit
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput("limit", f"has to be between 1 and {MAX_PAGE}")
    jobs = call.operations.jobs.list_recent(call.caller, call.query.get("page_token") or None, limit + 1)
    token = jobs[limit - 1].job_id if len(jobs) > limit else None
    return json_response(
        without_nulls({"jobs": [job_json(job) for job in jobs[:limit]], "page_token": token})
    )


def get_job(call: Call) -> Response:
    deadline = time.monotonic() + _wait_seconds(call)
    job = _find(call)
    while not job.state.is_final and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        job = _find(call)
    return json_response(job_json(job))


def cancel_job(call: Call) -> Response:
    return json_response(job_json(call.operations.jobs.cancel(call.caller, call.parameters["job_id"])))


def list_job_events(call: Call) -> Response:
    after = query_integer(call.query, "after") or 0
    events = call.operations.jobs.events(call.caller, call.parameters["job_id"], after)
    return json_response({"events": [event_json(event) for event in events]})


def _find(call: Call) -> Job:
    return call.operations.jobs.get(call.caller, call.parameters["job_id"])


def _wait_seconds(call: Call) -> float:
    raw = call.query.get("wait_seconds") or "0"
    try:
        seconds = float(raw)
    except ValueError as error:
        raise InvalidInput("wait_seconds", f"has to be a number, not {raw!r:.60}") from error
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        raise InvalidInput("wait_seconds", f"has to be between 0 and {MAX_WAIT_SECONDS:g}")
    return seconds


ROUTES: Final = (
    Route("GET", "/api/v1/jobs", list_jobs),
    Route("GET", "/api/v1/jobs/{job_id}", get_job, is_waiting=True),
    Route("POST", "/api/v1/jobs/{job_id}/cancel", cancel_job),
    Route("GET", "/api/v1/jobs/{job_id}/events", list_job_events),
)
