"""Jobs: their states, where they run, and what is recorded about them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import InvalidInput
from tidemill.jobs.errors import InvalidJobTransition
from tidemill.jobs.model.options import JobRequest, RefreshRequest, VerifyRequest

DEFAULT_CLUSTER: Final = "default"


class Clusters:
    """The clusters that jobs may ask for, and how many tasks each runs at a time."""

    def __init__(self, slots: Mapping[str, int]) -> None:
        self._slots = dict(slots)

    def check(self, name: str | None) -> str:
        """The name of the cluster meant; raises InvalidInput when there is none of that name."""
        wanted = name or DEFAULT_CLUSTER
        if wanted not in self._slots:
            known = ", ".join(sorted(self._slots))
            raise InvalidInput("cluster", f"there is no cluster {wanted!r:.60}; configured are: {known}")
        return wanted

    def slots(self, name: str | None) -> int:
        return self._slots[self.check(name)]


class JobState(StrEnum):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        return not NEXT_STATES[self]


NEXT_STATES: Final[Mapping[JobState, frozenset[JobState]]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.PAUSED, JobState.CANCELLED}),
    # RUNNING to RUNNING is a take-over: the lease ran out and another worker claimed the job.
    # RUNNING to QUEUED: it was asked to pause, and to go on before it had stopped.
    JobState.RUNNING: frozenset(
        {
            JobState.RUNNING,
            JobState.QUEUED,
            JobState.PAUSED,
            JobState.DONE,
            JobState.FAILED,
            JobState.CANCELLED,
        }
    ),
    JobState.PAUSED: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.DONE: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}

ACTIVE_STATES: Final = frozenset(state for state, following in NEXT_STATES.items() if following)


def check_transition(job_id: str, current: JobState, wanted: JobState) -> None:
    if wanted not in NEXT_STATES[current]:
        raise InvalidJobTransition(job_id, current, wanted)


class JobKind(StrEnum):
    BACKFILL = "backfill"
    REFRESH = "refresh"
    INDEX = "index"
    PREVIEW = "preview"
    VERIFY = "verify"


@dataclass(frozen=True, slots=True)
class Progress:
    """Rows of the source. For a refresh: computed = evaluated now, with calls of functions if there are any,
    reused = kept as they were or made without a call, replaced = those that were evaluated and had results
    before, removed = results of rows that are gone.
    """

    total: int = 0
    done: int = 0
    computed: int = 0
    reused: int = 0
    replaced: int = 0
    removed: int = 0
    skipped: int = 0
    written: int = 0
    commits: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job failed; the row and traceback when a function raised."""

    message: str
    exception: str | None = None
    traceback: str | None = None
    row_id: int | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to act for a job: valid only while the job's epoch is this one."""

    job_id: str
    epoch: int
    owner: str


@dataclass(frozen=True, slots=True)
class Job:
    """A piece of long work. `subject_id` is the column or view it fills: one active job each.

    `epoch` counts claims; `attempt` counts those since the job was last paused by somebody.
    """

    job_id: str
    kind: JobKind
    table_id: UUID
    table: TableIdent
    subject_id: UUID
    request: JobRequest
    state: JobState
    submitted_by: str
    created_at: datetime
    idempotency_key: str | None = None
    cluster: str = DEFAULT_CLUSTER
    epoch: int = 0
    attempt: int = 0
    owner: str | None = None
    lease_until_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    pause_requested_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    updated_at: datetime | None = None
    progress: Progress = field(default_factory=Progress)
    result: dict[str, Any] | None = None
    failure: Failure | None = None

    @property
    def column(self) -> str | None:
        return None if isinstance(self.request, RefreshRequest | VerifyRequest) else self.request.column


def new_job_id() -> str:
    """A UUID of version 7, so that ids sort by the time they were made."""
    millis = time.time_ns() // 1_000_000
    value = (millis & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(UUID(int=value))


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a list is of; None means any."""

    table_id: UUID | None = None
    subject_id: UUID | None = None
    kind: JobKind | None = None
    state: JobState | None = None


ANY_JOB: Final = JobFilter()


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job."""

    job_id: str
    sequence: int
    at: datetime
    kind: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobRevision:
    """Differs from an earlier one if the job or its log has changed."""

    state: JobState
    event_count: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Part:
    """One commit of a job in the ledger: applied once, never again."""

    job_id: str
    part: str
    epoch: int
    table_id: UUID
    version: int
    rows: bytes
