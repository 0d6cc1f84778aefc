"""The route that tells of a job as it goes on, as server-sent events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
import anyio.to_thread
import orjson
from starlette.responses import Response, StreamingResponse

from tidemill.errors import InvalidInput, TidemillError, Unavailable
from tidemill.jobs.model.jobs import Job, JobEvent
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.routing import Route
from tidemill.protocols.management.mapping import event_json, job_json

POLL_SECONDS: Final = 0.25
KEEP_ALIVE_SECONDS: Final = 10.0
KEEP_ALIVE: Final = b": still here\n\n"
EVENT_STREAM: Final = "text/event-stream"
# Proxies that wait for more before they pass it on would make the stream useless.
HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}
MAX_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class _Look:
    """A job as it was found, and what its log says since the look before."""

    job: Job
    log: Sequence[JobEvent]

    @property
    def substance(self) -> Job:
        """The job without what changes though nothing happens: signs of life of its worker."""
        return replace(self.job, updated_at=None, lease_until_at=None)


def watch_job(call: Call) -> Response:
    """Looks once before it answers, so that a job that is not there is refused like everywhere."""
    first = _look(call, _last_event_id(call))
    return StreamingResponse(_events(call, first), headers=HEADERS, media_type=EVENT_STREAM)


async def _events(call: Call, look: _Look) -> AsyncIterator[bytes]:
    """Between two looks a watcher holds no thread, so that there may be many of them."""
    sequence, shown, spoken_at = _last_event_id(call), None, time.monotonic()
    while True:
        told = _told(look, shown)
        if told:
            yield told
            spoken_at = time.monotonic()
        if look.job.state.is_final:
            return
        shown, sequence = look.substance, _sequence(look, sequence)
        await anyio.sleep(POLL_SECONDS)
        if time.monotonic() - spoken_at >= KEEP_ALIVE_SECONDS:
            yield KEEP_ALIVE
            spoken_at = time.monotonic()
        try:
            look = await anyio.to_thread.run_sync(_look, call, sequence)
        except Unavailable:
            look = replace(look, log=())
        except TidemillError as error:
            yield _event("error", {"code": error.code.value, "message": str(error)})
            return


def _look(call: Call, after: int) -> _Look:
    """The job first: what it writes into its log as it ends is there when it has ended."""
    job_id = call.parameters["job_id"]
    job = call.operations.jobs.get(call.caller, job_id)
    return _Look(job, call.operations.jobs.events(call.caller, job_id, after))


def _told(look: _Look, shown: Job | None) -> bytes:
    log = [_event("log", event_json(event), event.sequence) for event in look.log]
    is_news = look.substance != shown
    return b"".join([*log, _event("job", job_json(look.job))] if is_news else log)


def _event(kind: str, data: dict[str, Any], sequence: int | None = None) -> bytes:
    numbered = b"" if sequence is None else b"id: %d\n" % sequence
    return b"%sevent: %s\ndata: %s\n\n" % (numbered, kind.encode(), orjson.dumps(data))


def _sequence(look: _Look, before: int) -> int:
    return look.log[-1].sequence if look.log else before


def _last_event_id(call: Call) -> int:
    given = call.headers.get("last-event-id") or "0"
    if not given.isascii() or not given.isdigit() or len(given) > MAX_DIGITS:
        raise InvalidInput("last-event-id", f"has to be the id of an event of this job, not {given!r:.60}")
    return int(given)


ROUTES: Final = (Route("GET", "/api/v1/jobs/{job_id}/watch", watch_job),)
