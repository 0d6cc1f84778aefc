"""Jobs: what is asked for, how far it is, how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias
from uuid import UUID

from tidemill.catalog.model.environments import Environment
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.clusters import DEFAULT_CLUSTER
from tidemill.jobs.model.derived import RefreshPolicy
from tidemill.jobs.model.failures import FAIL_AT_ONCE, ErrorPolicy
from tidemill.jobs.model.state import JobState


class JobKind(StrEnum):
    BACKFILL = "backfill"
    REFRESH = "refresh"
    INDEX = "index"
    PREVIEW = "preview"
    VERIFY = "verify"


class RowSelection(StrEnum):
    """Which of the rows that need work a backfill is for."""

    # The value is of another version of the function, or of inputs that have changed since.
    STALE = "stale"
    # There never was a value.
    MISSING = "missing"
    # The function failed, and the row was skipped.
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """Everything a caller may say about a backfill; None means our default.

    `where` takes exactly its rows, `only` some of those that need work; without either it is all of these.
    """

    column: str
    branch: str | None = None
    where: str | None = None
    only: RowSelection | None = None
    read_version: int | None = None
    concurrency: int | None = None
    num_frags: int | None = None
    commit_granularity: int | None = None
    checkpoint_size: int | None = None
    min_checkpoint_size: int | None = None
    max_checkpoint_size: int | None = None
    flush_interval_seconds: float | None = None
    intra_applier_concurrency: int | None = None
    task_size: int | None = None
    cluster: str | None = None
    environment: Environment | None = None
    on_error: ErrorPolicy = FAIL_AT_ONCE


@dataclass(frozen=True, slots=True)
class PreviewRequest:
    """A few rows to compute and show, without publishing them."""

    column: str
    rows: int
    branch: str | None = None
    where: str | None = None
    cluster: str | None = None
    environment: Environment | None = None


@dataclass(frozen=True, slots=True)
class RefreshRequest:
    """Everything a caller may say about a refresh; None means our default, or what the view says.

    `output_limit` is for chunkers: so many rows are shown, in the order of the source rows.
    """

    source_version: int | None = None
    concurrency: int | None = None
    intra_applier_concurrency: int | None = None
    max_rows_per_fragment: int | None = None
    source_task_size: int | None = None
    output_limit: int | None = None
    cluster: str | None = None
    environment: Environment | None = None
    policy: RefreshPolicy | None = None
    on_error: ErrorPolicy | None = None


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """A look whether a view holds what its definition yields, for so many source rows; None: for all.

    The same seed picks the same rows.
    """

    rows: int | None = None
    seed: int = 0
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """An index to build on a branch; `column` is a canonical path, `parameters` are those given."""

    branch: str
    name: str
    column: str
    index_type: str
    parameters: dict[str, Any] = field(default_factory=dict)
    is_replacement: bool = False


JobRequest: TypeAlias = BackfillRequest | PreviewRequest | RefreshRequest | VerifyRequest | IndexRequest
"""One kind of request for each JobKind; `tidemill.store.job_rows` and the worker know them by their type."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Rows of the source. For a refresh: computed = evaluated now, reused = kept as they were,
    replaced = those of the computed that had results before, removed = results of rows that are gone.
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
class Part:
    """One commit of a job in the ledger: applied once, never again."""

    job_id: str
    part: str
    epoch: int
    table_id: UUID
    version: int
    rows: bytes
