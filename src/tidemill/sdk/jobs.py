"""Jobs as their submitter sees them: state, progress, waiting, cancelling."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from tidemill.jobs.model.jobs import Failure, Progress
from tidemill.jobs.model.state import JobState
from tidemill.sdk.errors import JobCancelled, JobFailed, WaitTimedOut
from tidemill.sdk.http import ServerClient
from tidemill.sdk.progress import Silence, progress_display

# The server answers a waiting request after this long at the latest.
LONGEST_POLL_SECONDS: Final = 30
SHOWN_POLL_SECONDS: Final = 1


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job."""

    sequence: int
    at: datetime | None
    kind: str
    data: Mapping[str, Any]


class Job:
    """A backfill or refresh that runs on the server, whether or not anybody waits for it.

    >>> import tidemill
    >>> @tidemill.udf
    ... def words(text: str) -> int:
    ...     return len(text.split())
    >>> docs.add_column("words", words)
    >>> job = docs.backfill("words")
    >>> job.wait(timeout=120).state
    <JobState.DONE: 'DONE'>
    >>> job.progress.computed
    2
    """

    def __init__(self, client: ServerClient, body: Mapping[str, Any]) -> None:
        self._client = client
        self._body = body

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.description}: {self.state}>"

    @property
    def id(self) -> str:
        return str(self._body["job_id"])

    @property
    def kind(self) -> str:
        """`backfill` or `refresh`."""
        return str(self._body["kind"])

    @property
    def table(self) -> tuple[str, ...]:
        """The levels of the table or view it fills."""
        return tuple(self._body["table"])

    @property
    def column(self) -> str | None:
        return self._body.get("column")

    @property
    def description(self) -> str:
        """What it fills, for people."""
        return f"{self.kind} {'.'.join((*self.table, *([self.column] if self.column else [])))}"

    @property
    def state(self) -> JobState:
        """The state as of the last answer; `reload` asks again."""
        return JobState(self._body["state"])

    @property
    def progress(self) -> Progress:
        """Rows done so far, as of the last answer."""
        known = {field.name for field in fields(Progress)}
        return Progress(
            **{key: value for key, value in (self._body.get("progress") or {}).items() if key in known}
        )

    @property
    def result(self) -> dict[str, Any] | None:
        """What a finished job says about its outcome."""
        found = self._body.get("result")
        return dict(found) if found is not None else None

    @property
    def failure(self) -> Failure | None:
        found = self._body.get("failure")
        if not found:
            return None
        return Failure(found["message"], found.get("exception"), found.get("traceback"), found.get("row_id"))

    @property
    def created_at(self) -> datetime | None:
        return _time(self._body.get("created_at"))

    @property
    def started_at(self) -> datetime | None:
        return _time(self._body.get("started_at"))

    @property
    def finished_at(self) -> datetime | None:
        return _time(self._body.get("finished_at"))

    def to_dict(self) -> dict[str, Any]:
        """Everything the server said about the job last."""
        return dict(self._body)

    def reload(self, *, wait_seconds: int = 0) -> Job:
        """Asks the server again; with `wait_seconds` it may wait that long for the job to end."""
        self._body = self._client.get(f"/api/v1/jobs/{self.id}", {"wait_seconds": wait_seconds or None})
        return self

    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> Job:
        """Waits until the job has ended.

        Args:
            timeout: Give up waiting after so many seconds; the job goes on.
            progress: Show a progress bar; by default only on a terminal.

        Raises:
            JobFailed: With the exception, traceback and row if a function raised.
            JobCancelled: Somebody cancelled it.
            WaitTimedOut: It had not ended in time.
        """
        is_shown = sys.stderr.isatty() if progress is None else progress
        deadline = None if timeout is None else time.monotonic() + timeout
        longest = SHOWN_POLL_SECONDS if is_shown else LONGEST_POLL_SECONDS
        with progress_display(self.description) if is_shown else Silence() as display:
            while not self.state.is_final:
                left = longest if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise WaitTimedOut(self, timeout or 0.0)
                self.reload(wait_seconds=min(longest, math.ceil(left)))
                display.show(self.state, self.progress)
            display.show(self.state, self.progress)
        return self._ended()

    def cancel(self) -> Job:
        """Asks the job to stop; it does so at its next checkpoint. What it has published stays."""
        self._client.post(f"/api/v1/jobs/{self.id}/cancel")
        return self.reload()

    def events(self, after: int = 0) -> list[JobEvent]:
        """What happened to the job since the event number `after`."""
        body = self._client.get(f"/api/v1/jobs/{self.id}/events", {"after": after or None})
        return [
            JobEvent(event["sequence"], _time(event.get("at")), event["kind"], event.get("data") or {})
            for event in body.get("events", [])
        ]

    def _ended(self) -> Job:
        if self.state is JobState.FAILED:
            raise JobFailed(self)
        if self.state is JobState.CANCELLED:
            raise JobCancelled(self)
        return self


def get_job(client: ServerClient, job_id: str) -> Job:
    return Job(client, client.get(f"/api/v1/jobs/{job_id}"))


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
