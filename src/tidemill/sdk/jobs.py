"""Jobs as their submitter sees them: state, progress, waiting, cancelling, and what they found."""

from __future__ import annotations

import base64
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Protocol, Self

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from tidemill.jobs.model.jobs import Failure, JobKind, JobState, Progress
from tidemill.sdk.errors import JobCancelled, JobFailed, WaitTimedOut
from tidemill.sdk.explain import counted
from tidemill.sdk.http import ServerClient, from_answer
from tidemill.sdk.status import RowErrorInfo, row_error

SHOWN_ROWS: Final = 10
SHOWN_CHARACTERS: Final = 32


@dataclass(frozen=True)
class Preview:
    """What a column's function makes of some rows; nothing of it is published.

    `rows` has the row ids, the inputs and the results. `reused` of them were known already, for instance from
    an earlier preview. `is_truncated` says that large values were left out of the answer.
    """

    table: str
    column: str
    job_id: str
    source_version: int
    rows_per_second: float | None
    reused: int
    is_truncated: bool
    errors: tuple[RowErrorInfo, ...]
    rows: pa.Table

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table: `_rowid`, the inputs and the results."""
        return self.rows

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame."""
        return self.rows.to_pandas()

    @property
    def summary(self) -> str:
        """What was previewed, in one line."""
        notes = [counted(self.rows.num_rows, "row")]
        if self.rows_per_second is not None:
            notes.append(f"{self.rows_per_second:,.4g} rows/s")
        if self.reused:
            notes.append(f"{self.reused:,} reused")
        if self.errors:
            notes.append(f"{len(self.errors):,} failed")
        if self.is_truncated:
            notes.append("truncated")
        return f"Preview of {self.table}.{self.column} at version {self.source_version}: {', '.join(notes)}"

    def __repr__(self) -> str:
        shown = self.rows.slice(0, SHOWN_ROWS)
        lines = [[str(name) for name in shown.column_names]]
        lines += [[shortened(value) for value in row.values()] for row in shown.to_pylist()]
        return "\n".join([self.summary, *_aligned(lines), *(f"! {error}" for error in self.errors)])


def read_preview(table: str, column: str, job_id: str, result: Mapping[str, Any]) -> Preview:
    return from_answer(
        Preview,
        result,
        table=table,
        column=column,
        job_id=job_id,
        reused=result.get("rows_reused", 0),
        is_truncated=bool(result.get("truncated")),
        errors=tuple(row_error(column, item) for item in result.get("errors") or ()),
        rows=pa.ipc.open_stream(base64.b64decode(result["arrow"])).read_all(),
    )


def shortened(value: Any) -> str:
    """A value in a few characters of one line."""
    # Slices first: a value may be an image.
    begin = value[: 2 * SHOWN_CHARACTERS] if isinstance(value, str | bytes | list) else value
    text = begin if isinstance(begin, str) else repr(begin)
    line = " ".join(text.split())
    is_cut = len(line) > SHOWN_CHARACTERS or begin != value
    return line[: SHOWN_CHARACTERS - 1] + "…" if is_cut else line


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is not as the definition has it.

    `kind` is `missing` (the view should have it), `unexpected` (it should not) or `different`; then `columns`
    are those whose values differ. `expected` and `found` are the values, `key` says which row it is.
    """

    kind: str
    key: Any
    columns: tuple[str, ...] = ()
    expected: Any = None
    found: Any = None


@dataclass(frozen=True, slots=True)
class Verification:
    """How the rows of a view compare with its definition, recomputed at the same source versions."""

    view: str
    is_same: bool
    rows_checked: int
    rows_same: int
    rows_missing: int
    rows_unexpected: int
    rows_different: int
    source_versions: tuple[int, ...]
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        head = f"{self.view}: {counted(self.rows_checked, 'row')} checked"
        if self.is_same:
            return f"{head}, all as the definition has them"
        return (
            f"{head}, {self.rows_same:,} the same, {self.rows_missing:,} missing, "
            f"{self.rows_unexpected:,} unexpected, {self.rows_different:,} different"
        )


def read_verification(view: str, result: Mapping[str, Any]) -> Verification:
    return from_answer(
        Verification,
        result,
        view=view,
        source_versions=tuple(result.get("source_versions") or ()),
        differences=tuple(map(_difference, result.get("differences") or ())),
    )


def _difference(body: Mapping[str, Any]) -> Difference:
    return from_answer(Difference, body, columns=tuple(body.get("columns") or ()))


# The server answers a waiting request after this long at the latest.
LONGEST_POLL_SECONDS: Final = 30
SHOWN_POLL_SECONDS: Final = 1
# Delay before reconnecting to the stream of a job that is still running.
RECONNECT_SECONDS: Final = 1.0


class ProgressDisplay(Protocol):
    """Something that shows how far a job is while the block lasts."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, state: JobState, progress: Progress) -> None: ...


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, state: JobState, progress: Progress) -> None:
        return None


class TerminalBar:
    """A bar on standard error, so that results on standard output stay clean."""

    def __init__(self, description: str) -> None:
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
        )
        self._task = self._bars.add_task(description, total=None, note="queued")

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def show(self, state: JobState, progress: Progress) -> None:
        total = progress.total or (1 if state.is_final else None)
        done = total if state is JobState.DONE and total is not None else progress.done
        self._bars.update(self._task, total=total, completed=done, note=note(state, progress))


def progress_display(description: str) -> ProgressDisplay:
    return TerminalBar(description)


def note(state: JobState, progress: Progress) -> str:
    """The words beside the bar."""
    counts = {
        "computed": progress.computed,
        "reused": progress.reused,
        "replaced": progress.replaced,
        "removed": progress.removed,
        "skipped": progress.skipped,
    }
    shown = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    return f"{state.value.lower()}{': ' if shown else ''}{shown}"


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job."""

    sequence: int
    at: datetime | None
    kind: str
    data: Mapping[str, Any]


class Job:
    """A backfill, preview, refresh or verification that runs on the server, whether anybody waits or not.

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
        """`backfill`, `preview`, `refresh`, `verify` or `index`."""
        return str(self._body["kind"])

    @property
    def table(self) -> tuple[str, ...]:
        """The levels of the table or view it fills."""
        return tuple(self._body["table"])

    @property
    def column(self) -> str | None:
        return self._body.get("column")

    @property
    def branch(self) -> str | None:
        """The branch of the table it works on."""
        return self._body.get("branch")

    @property
    def cluster(self) -> str | None:
        """The cluster it runs on."""
        return self._body.get("cluster")

    @property
    def description(self) -> str:
        """What it fills, for people."""
        return f"{self.kind} {'.'.join((*self.table, *([self.column] if self.column else [])))}"

    @property
    def state(self) -> JobState:
        """The state as of the last response; `reload` updates it."""
        return JobState(self._body["state"])

    @property
    def progress(self) -> Progress:
        """Rows done so far, as of the last response."""
        known = {field.name for field in fields(Progress)}
        return Progress(
            **{key: value for key, value in (self._body.get("progress") or {}).items() if key in known}
        )

    @property
    def rows_per_second(self) -> float | None:
        """How fast rows are computed; None as long as it is unknown."""
        found = self._body.get("rows_per_second")
        return None if found is None else float(found)

    @property
    def eta(self) -> timedelta | None:
        """Remaining time at this speed; None as long as it is unknown."""
        found = self._body.get("eta_seconds")
        return None if found is None else timedelta(seconds=found)

    @property
    def result(self) -> dict[str, Any] | None:
        """The outcome of a finished job, as JSON."""
        found = self._body.get("result")
        return dict(found) if found is not None else None

    @property
    def rows_left(self) -> int:
        """Rows that still needed work when a backfill ended, because others kept writing or by request."""
        return int((self.result or {}).get("rows_left", 0))

    @property
    def verification(self) -> Verification | None:
        """What a finished job of `View.verify` found."""
        found = self.result
        is_verified = self.kind == JobKind.VERIFY and found is not None
        return read_verification(".".join(self.table), found or {}) if is_verified else None

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
        """The job as the server last described it, as JSON."""
        return dict(self._body)

    def reload(self, *, wait_seconds: int = 0) -> Job:
        """Updates it from the server, which may wait up to `wait_seconds` for the job to end."""
        self._body = self._client.get(f"/api/v1/jobs/{self.id}", {"wait_seconds": wait_seconds or None})
        return self

    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> Job:
        """Waits until the job has ended, however long it is paused.

        Args:
            timeout: Stop waiting after this many seconds; the job continues.
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
        """Asks the job to stop at its next checkpoint. What it has published stays."""
        self._client.post(f"/api/v1/jobs/{self.id}/cancel")
        return self.reload()

    def pause(self) -> Job:
        """Asks the job to pause at its next safe point; it keeps its checkpoints.

        >>> import tidemill
        >>> @tidemill.udf
        ... def words(text: str) -> int:
        ...     return len(text.split())
        >>> docs.add_column("words", words)
        >>> job = docs.backfill("words")
        >>> job.pause().resume().wait(timeout=120).state
        <JobState.DONE: 'DONE'>
        """
        self._body = self._client.post(f"/api/v1/jobs/{self.id}/pause")
        return self

    def resume(self) -> Job:
        """Resumes a paused job from its checkpoints."""
        self._body = self._client.post(f"/api/v1/jobs/{self.id}/resume")
        return self

    def watch(self, on_event: Callable[[JobEvent], None] | None = None) -> Iterator[Job]:
        """Yields the job whenever it changes, until it has ended; does not raise if it failed.

        Args:
            on_event: Called with each entry of the job's log as it is written.

        >>> import tidemill
        >>> @tidemill.udf
        ... def words(text: str) -> int:
        ...     return len(text.split())
        >>> docs.add_column("words", words)
        >>> [snapshot.state for snapshot in docs.backfill("words").watch()][-1]
        <JobState.DONE: 'DONE'>
        """
        seen = 0
        while True:
            for event in self._client.events(f"/api/v1/jobs/{self.id}/watch", seen):
                if event.kind == "job":
                    self._body = event.data
                    yield Job(self._client, event.data)
                elif event.kind == "log" and event.data["sequence"] > seen:
                    seen = event.data["sequence"]
                    if on_event is not None:
                        on_event(_event(event.data))
            if self.state.is_final:
                return
            time.sleep(RECONNECT_SECONDS)

    def events(self, after: int = 0) -> list[JobEvent]:
        """What happened to the job since the event number `after`."""
        body = self._client.get(f"/api/v1/jobs/{self.id}/events", {"after": after or None})
        return [_event(event) for event in body.get("events", [])]

    def _ended(self) -> Job:
        if self.state is JobState.FAILED:
            raise JobFailed(self)
        if self.state is JobState.CANCELLED:
            raise JobCancelled(self)
        return self


def get_job(client: ServerClient, job_id: str) -> Job:
    return Job(client, client.get(f"/api/v1/jobs/{job_id}"))


def _event(body: Mapping[str, Any]) -> JobEvent:
    return JobEvent(body["sequence"], _time(body.get("at")), body["kind"], body.get("data") or {})


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
