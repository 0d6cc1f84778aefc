"""The route that streams the progress of a job as server-sent events."""

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

from tidemill.errors import InvalidInput, TidemillError, Unavailable
from tidemill.jobs.model.jobs import Job, JobEvent, JobRevision
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.routing import Route
from tidemill.protocols.management.mapping import event_json, job_json

KEEP_ALIVE_SECONDS: Final = 10.0
KEEP_ALIVE: Final = b": still here\n\n"
EVENT_STREAM: Final = "text/event-stream"
# Tell proxies not to buffer the stream.
HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}
MAX_DIGITS: Final = 18


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


ROUTES: Final = (Route("GET", "/api/v1/jobs/{job_id}/watch", watch_job),)
