"""Routes of jobs, as lancedb's remote client calls them; the specification has none."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.errors import Unsupported
from tidemill.jobs.errors import InvalidJobTransition
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.http.responses import arrow_stream_response, json_response, without_nulls
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.job_mapping import events_table, job_json, job_summary

PAGE_SIZE: Final = 100
MAX_EVENTS: Final = 10_000


def list_jobs(call: Call) -> Response:
    body = read_object(call.body)
    jobs = call.operations.jobs.list_recent(call.caller, body.text("page_token") or None, PAGE_SIZE + 1)
    shown = jobs[:PAGE_SIZE]
    token = shown[-1].job_id if len(jobs) > PAGE_SIZE else None
    return json_response(without_nulls({"jobs": [job_summary(job) for job in shown], "page_token": token}))


def describe_job(call: Call) -> Response:
    job_id = read_object(call.body).required_text("job_id")
    return json_response(job_json(call.operations.jobs.get(call.caller, job_id)))


def cancel_job(call: Call) -> Response:
    """Cancelling a job that is over succeeds and changes nothing: lancedb's clients count on that."""
    job_id = read_object(call.body).required_text("job_id")
    try:
        job = call.operations.jobs.cancel(call.caller, job_id)
    except InvalidJobTransition:
        job = call.operations.jobs.get(call.caller, job_id)
    return json_response(job_json(job))


def query_job_events(call: Call) -> Response:
    body = read_object(call.body)
    if body.text("filter"):
        raise Unsupported("filter: is not supported yet on job events; leave it out")
    limit = body.integer("limit", 0)
    events = call.operations.jobs.events(call.caller, body.required_text("job_id"), 0)
    return arrow_stream_response(events_table(events[: MAX_EVENTS if limit is None else limit]))


def pause_or_resume_job(_call: Call) -> Response:
    raise Unsupported("Pausing and resuming jobs is not supported yet; cancel the job and submit it again")


ROUTES: Final = (
    Route("POST", "/v1/jobs/list", list_jobs),
    Route("POST", "/v1/jobs/describe", describe_job),
    Route("POST", "/v1/jobs/cancel", cancel_job),
    Route("POST", "/v1/jobs/query_events", query_job_events),
    Route("POST", "/v1/jobs/pause", pause_or_resume_job),
    Route("POST", "/v1/jobs/resume", pause_or_resume_job),
)
