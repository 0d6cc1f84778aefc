"""Routes of jobs: explain, list, get, wait, watch, pause, resume, cancel, events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
import anyio.to_thread
import orjson
from starlette.responses import Response, StreamingResponse

from tidemill.catalog.model.identifiers import TableIdent, table_ident
from tidemill.catalog.model.json_values import Choice, read_choice
from tidemill.errors import InvalidInput, TidemillError, Unavailable
from tidemill.jobs.model.jobs import Job, JobEvent, JobKind, JobRevision, JobState
from tidemill.protocols.http.call import Call, json_response, without_nulls
from tidemill.protocols.http.fields import (
    DEFAULT_DELIMITER,
    delimiter_of,
    query_integer,
    read_object,
    split_id,
    table_of,
)
from tidemill.protocols.http.job_requests import backfill_request, refresh_request
from tidemill.protocols.http.routing import Route
from tidemill.protocols.management.mapping import (
    event_json,
    explanation_json,
    job_json,
    listed_job_json,
    page_limit,
)

MAX_WAIT_SECONDS: Final = 30.0
KEEP_ALIVE_SECONDS: Final = 10.0
KEEP_ALIVE: Final = b": still here\n\n"
EVENT_STREAM: Final = "text/event-stream"
# Tell proxies not to buffer the stream.
HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}
MAX_DIGITS: Final = 18


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


def explain_backfill(call: Call) -> Response:
    ident = table_of(call)
    request = backfill_request(read_object(call.body))
    return json_response(explanation_json(call.operations.explain.backfill(call.caller, ident, request)))


def explain_refresh(call: Call) -> Response:
    ident = table_of(call)
    request = refresh_request(read_object(call.body))
    return json_response(explanation_json(call.operations.explain.refresh(call.caller, ident, request)))


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A job, and the events in its log since the previous snapshot."""

    job: Job
    new_events: Sequence[JobEvent]

    @property
    def visible_state(self) -> Job:
        """The job without fields that change although nothing happens: heartbeats of its worker."""
        return replace(self.job, updated_at=None, lease_until_at=None)


def watch_job(call: Call) -> Response:
    """Reads the job before it responds, so that an unknown job returns 404 as everywhere else."""
    first = _read_snapshot(call, _last_event_id(call))
    return StreamingResponse(_events(call, first), headers=HEADERS, media_type=EVENT_STREAM)


async def _events(call: Call, snapshot: _Snapshot) -> AsyncIterator[bytes]:
    """Holds no thread between two snapshots, so that many clients can watch."""
    sequence, last_sent, last_sent_at = _last_event_id(call), None, time.monotonic()
    with _notified(call) as changed:
        while True:
            changes = _changes(snapshot, last_sent)
            if changes:
                yield changes
                last_sent_at = time.monotonic()
            if snapshot.job.state.is_final:
                return
            last_sent, sequence = snapshot.visible_state, _sequence(snapshot, sequence)
            with anyio.move_on_after(KEEP_ALIVE_SECONDS):
                await changed.wait()
            changed.clear()
            if time.monotonic() - last_sent_at >= KEEP_ALIVE_SECONDS:
                yield KEEP_ALIVE
                last_sent_at = time.monotonic()
            try:
                snapshot = await anyio.to_thread.run_sync(_read_snapshot, call, sequence)
            except Unavailable:
                snapshot = replace(snapshot, new_events=())
            except TidemillError as error:
                yield _event("error", {"code": error.code.value, "message": str(error)})
                return


@contextmanager
def _notified(call: Call) -> Iterator[asyncio.Event]:
    """An event that is set whenever the job has changed."""
    changed, loop = asyncio.Event(), asyncio.get_running_loop()

    def wake(_: JobRevision | None) -> None:
        # The loop is closed if the server is shutting down.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(changed.set)

    with call.operations.jobs.changes.notifying(call.parameters["job_id"], wake):
        yield changed


def _read_snapshot(call: Call, after: int) -> _Snapshot:
    """Reads the job before its log, so that the log of a job that has ended is complete."""
    job_id = call.parameters["job_id"]
    job = call.operations.jobs.get(call.caller, job_id)
    return _Snapshot(job, call.operations.jobs.events(call.caller, job_id, after))


def _changes(snapshot: _Snapshot, last_sent: Job | None) -> bytes:
    new_events = [_event("log", event_json(event), event.sequence) for event in snapshot.new_events]
    has_changed = snapshot.visible_state != last_sent
    return b"".join([*new_events, _event("job", job_json(snapshot.job))] if has_changed else new_events)


def _event(kind: str, data: dict[str, Any], sequence: int | None = None) -> bytes:
    numbered = b"" if sequence is None else b"id: %d\n" % sequence
    return b"%sevent: %s\ndata: %s\n\n" % (numbered, kind.encode(), orjson.dumps(data))


def _sequence(snapshot: _Snapshot, before: int) -> int:
    return snapshot.new_events[-1].sequence if snapshot.new_events else before


def _last_event_id(call: Call) -> int:
    raw = call.headers.get("last-event-id") or "0"
    if not raw.isascii() or not raw.isdigit() or len(raw) > MAX_DIGITS:
        raise InvalidInput("last-event-id", f"must be the id of an event of this job, not {raw!r:.60}")
    return int(raw)


ROUTES: Final = (
    Route("GET", "/api/v1/jobs", list_jobs),
    Route("GET", "/api/v1/jobs/{job_id}", get_job, is_waiting=True),
    Route("POST", "/api/v1/jobs/{job_id}/cancel", cancel_job),
    Route("POST", "/api/v1/jobs/{job_id}/pause", pause_job),
    Route("POST", "/api/v1/jobs/{job_id}/resume", resume_job),
    Route("GET", "/api/v1/jobs/{job_id}/events", list_job_events),
    Route("POST", "/api/v1/tables/{id}/explain", explain_backfill, is_reading=True),
    Route("POST", "/api/v1/views/{id}/explain", explain_refresh, is_reading=True),
    Route("GET", "/api/v1/jobs/{job_id}/watch", watch_job),
)
