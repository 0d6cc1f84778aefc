"""Routes of jobs for lancedb's remote client. The specification has none."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.auditing import note_job
from tidemill.catalog.errors import FunctionNotFound
from tidemill.catalog.model.functions import RegisteredFunction
from tidemill.jobs.errors import InvalidJobTransition, JobNotFound
from tidemill.jobs.model.jobs import JobState
from tidemill.protocols.http.call import Call, arrow_stream_response, json_response, without_nulls
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.job_mapping import (
    EVENT_SCHEMA,
    event_condition,
    event_rows,
    events_table,
    job_json,
    job_summary,
)
from tidemill.protocols.lance.lancedb_functions import (
    is_registration,
    registered_by_job,
    registration_job_json,
)

PAGE_SIZE: Final = 100
# Both limits are part of lancedb's API.
DEFAULT_EVENTS: Final = 1000
MAX_EVENTS: Final = 10_000


def list_jobs(call: Call) -> Response:
    body = read_object(call.body)
    jobs = call.operations.jobs.list_recent(call.caller, body.text("page_token") or None, PAGE_SIZE + 1)
    page = jobs[:PAGE_SIZE]
    token = page[-1].job_id if len(jobs) > PAGE_SIZE else None
    return json_response(without_nulls({"jobs": [job_summary(job) for job in page], "page_token": token}))


def describe_job(call: Call) -> Response:
    job_id = read_object(call.body).required_text("job_id")
    registered = _registration(call, job_id)
    if registered is not None:
        return json_response(registration_job_json(job_id, registered))
    return json_response(job_json(call.operations.jobs.get(call.caller, job_id)))


def cancel_job(call: Call) -> Response:
    """Cancelling a job that has ended succeeds and changes nothing, as lancedb's clients expect."""
    job_id = read_object(call.body).required_text("job_id")
    registered = _registration(call, job_id)
    if registered is not None:
        note_job(job_id)
        return json_response(registration_job_json(job_id, registered))
    try:
        job = call.operations.jobs.cancel(call.caller, job_id)
    except InvalidJobTransition:
        job = call.operations.jobs.get(call.caller, job_id)
    return json_response(job_json(job))


def pause_job(call: Call) -> Response:
    """A running job continues to its next safe point; the response does not wait for that."""
    job_id = read_object(call.body).required_text("job_id")
    _refuse_registration(call, job_id)
    was_paused = call.operations.jobs.get(call.caller, job_id).state is JobState.PAUSED
    call.operations.jobs.pause(call.caller, job_id)
    return json_response({"paused": not was_paused, "committing": False})


def resume_job(call: Call) -> Response:
    """A job that has not reached its safe point yet continues without pausing."""
    job_id = read_object(call.body).required_text("job_id")
    _refuse_registration(call, job_id)
    before = call.operations.jobs.get(call.caller, job_id)
    call.operations.jobs.resume(call.caller, job_id)
    was_pausing = before.state is JobState.PAUSED or before.pause_requested_at is not None
    return json_response({"resumed": was_pausing, "still_pausing": False})


def query_job_events(call: Call) -> Response:
    body = read_object(call.body)
    job_id, limit = body.required_text("job_id"), body.integer("limit", 0)
    count = min(DEFAULT_EVENTS if limit is None else limit, MAX_EVENTS)
    condition = body.text("filter")
    if _registration(call, job_id) is not None:
        return arrow_stream_response(events_table([]))
    rows = event_rows(call.operations.jobs.events(call.caller, job_id, 0))
    if condition is not None:
        is_wanted = event_condition(condition, EVENT_SCHEMA.names, "filter")
        rows = [row for row in rows if is_wanted(row)]
    return arrow_stream_response(events_table(rows[:count]))


def _registration(call: Call, job_id: str) -> RegisteredFunction | None:
    digest = registered_by_job(job_id)
    if digest is None:
        return None
    try:
        registered = call.operations.functions.get_registration(call.caller, digest)
    except FunctionNotFound as error:
        raise JobNotFound(job_id) from error
    if not is_registration(registered.function):
        raise JobNotFound(job_id)
    return registered


def _refuse_registration(call: Call, job_id: str) -> None:
    if _registration(call, job_id) is not None:
        raise InvalidJobTransition(job_id, JobState.DONE, JobState.PAUSED)


ROUTES: Final = (
    Route("POST", "/v1/jobs/list", list_jobs, is_reading=True),
    Route("POST", "/v1/jobs/describe", describe_job, is_reading=True),
    Route("POST", "/v1/jobs/cancel", cancel_job),
    Route("POST", "/v1/jobs/query_events", query_job_events, is_reading=True),
    Route("POST", "/v1/jobs/pause", pause_job),
    Route("POST", "/v1/jobs/resume", resume_job),
)
