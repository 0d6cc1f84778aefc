"""Jobs: their states, what each kind is asked for, where it runs, and what is recorded about it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias
from uuid import UUID

from tidemill.catalog.model.functions import Environment
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import InvalidInput
from tidemill.jobs.errors import InvalidJobTransition
from tidemill.jobs.model.failures import FAIL_AT_ONCE, ErrorPolicy
from tidemill.jobs.model.declarations import Shorthand, option
from tidemill.jobs.model.views import RefreshPolicy

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


class RowSelection(StrEnum):
    """Which of the rows that need work a backfill is for."""

    # The value is of another version of the function, or of inputs that have changed since.
    STALE = "stale"
    # There never was a value.
    MISSING = "missing"
    # The function failed, and the row was skipped.
    FAILED = "failed"


# Options that several requests have.
BRANCH: Final = option("Branch of the table; main by default.")
WHERE: Final = option("SQL condition: exactly these rows, whether they need work or not.", is_expression=True)
CONCURRENCY: Final = option("Maximum number of tasks at a time.", minimum=1)
CALLS: Final = option("Calls of the function at a time in each task.", minimum=1, maximum=256)
CLUSTER: Final = option("Name of a cluster in the server's settings.")
MANIFEST: Final = option(
    "Packages and variables: the name of a stored manifest, or one as JSON text.",
    hint_for="columns and views that call no function",
)


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """What a caller asks of a backfill; None means our default.

    `where` takes exactly its rows, `only` some of those that need work; without either it is all of these.
    `environment` is what `manifest` names, and takes its place when the job is submitted.
    """

    column: str = field(metadata=option("Column to fill; columns of one function are filled together."))
    branch: str | None = field(default=None, metadata=BRANCH)
    where: str | None = field(default=None, metadata=WHERE)
    only: RowSelection | None = field(
        default=None,
        metadata=option(
            "Restrict to stale, missing or failed rows; cannot be combined with where.",
            shorthand=Shorthand("retry_failed", RowSelection.FAILED, "Restrict to failed rows."),
        ),
    )
    read_version: int | None = field(
        default=None,
        metadata=option("Version of the table to compute from; the latest by default.", minimum=1),
    )
    concurrency: int | None = field(default=None, metadata=CONCURRENCY)
    num_frags: int | None = field(
        default=None,
        metadata=option("Maximum number of fragments; the rest is left to another job.", minimum=1),
    )
    commit_granularity: int | None = field(
        default=None,
        metadata=option("Publish after this many fragments instead of all at once.", minimum=1),
    )
    checkpoint_size: int | None = field(
        default=None,
        metadata=option(
            "Rows in the first batch of a task; later ones adapt to how long it took.", minimum=1
        ),
    )
    min_checkpoint_size: int | None = field(
        default=None, metadata=option("Smallest batch that is adapted to.", minimum=1)
    )
    max_checkpoint_size: int | None = field(
        default=None, metadata=option("Largest batch that is adapted to.", minimum=1)
    )
    flush_interval_seconds: float | None = field(
        default=None,
        metadata=option(
            "Seconds after which a task checkpoints its results.",
            name="batch_checkpoint_flush_interval_seconds",
            flag="--flush-interval",
        ),
    )
    intra_applier_concurrency: int | None = field(default=None, metadata=CALLS)
    task_size: int | None = field(default=None, metadata=option("Rows per task.", minimum=1))
    cluster: str | None = field(default=None, metadata=CLUSTER)
    environment: Environment | None = None
    manifest: str | None = field(default=None, metadata=MANIFEST)
    on_error: ErrorPolicy = field(
        default=FAIL_AT_ONCE, metadata=option("What to do when the function fails on a row.")
    )

    def check_options(self) -> None:
        """Raises InvalidInput where options contradict each other."""
        if self.where is not None and self.only is not None:
            raise InvalidInput("only", "excludes where; give one of them")
        first, low, high = self.checkpoint_size, self.min_checkpoint_size, self.max_checkpoint_size
        if low is not None and high is not None and low > high:
            raise InvalidInput("min_checkpoint_size", f"{low} is more than max_checkpoint_size, {high}")
        if first is not None and low is not None and first < low:
            raise InvalidInput("checkpoint_size", f"{first} is less than min_checkpoint_size, {low}")
        if first is not None and high is not None and first > high:
            raise InvalidInput("checkpoint_size", f"{first} is more than max_checkpoint_size, {high}")


@dataclass(frozen=True, slots=True)
class PreviewRequest:
    """A few rows to compute and show, without publishing them; `environment` as in a backfill."""

    column: str = field(metadata=option("Column to compute."))
    rows: int = field(default=10, metadata=option("Maximum number of rows.", minimum=1, maximum=1000))
    branch: str | None = field(default=None, metadata=BRANCH)
    where: str | None = field(default=None, metadata=WHERE)
    cluster: str | None = field(default=None, metadata=CLUSTER)
    environment: Environment | None = None
    manifest: str | None = field(default=None, metadata=MANIFEST)


@dataclass(frozen=True, slots=True)
class RefreshRequest:
    """What a caller asks of a refresh; None means our default, or what the view says.

    `environment` as in a backfill.
    """

    source_version: int | None = field(
        default=None,
        metadata=option(
            "Version of the source to read; the latest by default.",
            # The specification says `src_version`, lancedb's client `source_version`.
            name="src_version",
            alias="source_version",
            minimum=1,
        ),
    )
    concurrency: int | None = field(default=None, metadata=CONCURRENCY)
    intra_applier_concurrency: int | None = field(
        default=None,
        metadata=option(
            "Calls of the function at a time in each task.",
            minimum=1,
            maximum=256,
            hint_for="table functions and for views that call no function",
        ),
    )
    max_rows_per_fragment: int | None = field(
        default=None, metadata=option("Maximum number of rows in a fragment of the view.", minimum=1)
    )
    source_task_size: int | None = field(
        default=None,
        metadata=option(
            "Source rows per task.",
            minimum=1,
            hint_for="table functions, SQL other than plain scans, and refreshes with output_limit",
        ),
    )
    output_limit: int | None = field(
        default=None,
        metadata=option("For chunkers: maximum number of rows in the view, in the order of the source rows."),
    )
    cluster: str | None = field(default=None, metadata=CLUSTER)
    environment: Environment | None = None
    manifest: str | None = field(default=None, metadata=MANIFEST)
    policy: RefreshPolicy | None = field(
        default=None,
        metadata=option(
            "Recompute what changed or everything, for this refresh; the view's own policy by default.",
            # lancedb's client says `full`.
            shorthand=Shorthand("full", RefreshPolicy.FULL, "Recompute every row."),
        ),
    )
    on_error: ErrorPolicy | None = field(
        default=None,
        metadata=option(
            "What to do when a function fails on a row; the view's own policy by default.",
            hint_for="views that call no function",
        ),
    )


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """A check whether a view holds what its definition yields, for some source rows or for all."""

    rows: int | None = field(
        default=None, metadata=option("Number of source rows to check, at random; all by default.", minimum=1)
    )
    seed: int = field(default=0, metadata=option("The same seed checks the same rows."))
    cluster: str | None = field(default=None, metadata=CLUSTER)


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
"""One kind of request for each JobKind; `tidemill.store.jobs` and the worker know them by their type."""


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
