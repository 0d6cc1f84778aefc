"""What the job engine needs from the outside: job rows, coverage, table data, and hands to do the work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.functions import Environment
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import Table
from tidemill.catalog.ports import CatalogTransaction
from tidemill.jobs.model.columns import (
    CheckpointRef,
    ColumnFile,
    ComputedColumn,
    ComputedRows,
    FillColumn,
    Published,
)
from tidemill.jobs.model.coverage import Coverage, Watched
from tidemill.jobs.model.failures import RowError
from tidemill.jobs.model.jobs import (
    ANY_JOB,
    DEFAULT_CLUSTER,
    Job,
    JobEvent,
    JobFilter,
    JobRevision,
    Lease,
    Part,
    Progress,
)
from tidemill.jobs.model.views import (
    KeptResults,
    MaterializedView,
    ViewStage,
    WrittenRows,
)


class JobRepository(Protocol):
    def add(self, job: Job) -> None:
        """Raises JobAlreadyActive when the subject has an active job. created_at is taken from `job`."""

    def get(self, job_id: str) -> Job:
        """Raises JobNotFound."""

    def find_by_key(self, submitted_by: str, idempotency_key: str) -> Job | None: ...

    def list_recent(self, before: str | None, limit: int, wanted: JobFilter = ANY_JOB) -> Sequence[Job]:
        """Newest first: by id descending, ids being UUIDv7; `before` is the last id of the page before."""

    def list_active(self, table_id: UUID) -> Sequence[Job]:
        """Jobs of the table that are not over, oldest first."""

    def request_cancel(self, job_id: str) -> Job:
        """A QUEUED or PAUSED job becomes CANCELLED at once; a RUNNING one is marked; a finished one raises
        InvalidJobTransition."""

    def request_pause(self, job_id: str) -> Job:
        """A QUEUED job becomes PAUSED at once; a RUNNING one is marked; a PAUSED one stays as it is; a
        finished one raises InvalidJobTransition."""

    def resume(self, job_id: str) -> Job:
        """A PAUSED job becomes QUEUED; of a RUNNING one the mark is taken away; a QUEUED one stays as it is;
        a finished one raises InvalidJobTransition."""


class JobLeases(Protocol):
    """Who may act for a job. All times are the database's."""

    def claim(self, owner: str, duration: timedelta, cluster: str = DEFAULT_CLUSTER) -> Job | None:
        """Takes the oldest job for that cluster that is QUEUED, or RUNNING with a lease that ran out; raises
        its epoch."""

    def renew(self, lease: Lease, duration: timedelta) -> Job:
        """Raises LeaseLost."""

    def check(self, lease: Lease) -> None:
        """Raises LeaseLost unless the job is RUNNING under this epoch; locks its row until the end of the
        transaction, so that what follows in it happens under the lease or not at all."""

    def record_progress(self, lease: Lease, progress: Progress) -> None:
        """Raises LeaseLost."""

    def finish(self, lease: Lease, ended: Job) -> None:
        """Writes state, progress, result and failure of `ended`; raises LeaseLost, InvalidJobTransition."""

    def suspend(self, lease: Lease, progress: Progress) -> Job:
        """Puts the job down where it stands: PAUSED, or QUEUED if it was resumed meanwhile. Raises
        LeaseLost."""

    def release(self, lease: Lease) -> None:
        """Gives the job back at once: its lease ends now. Losing the lease before is fine."""


class JobEvents(Protocol):
    def append(self, job_id: str, kind: str, data: dict[str, object]) -> None: ...

    def list_after(self, job_id: str, sequence: int) -> Sequence[JobEvent]: ...

    def revisions(self, job_ids: Collection[str]) -> Mapping[str, JobRevision]:
        """Of those jobs that exist."""


class PartLedger(Protocol):
    def add(self, part: Part) -> None:
        """Raises ConcurrentModification when (job, part) is there already."""

    def list_of(self, job_id: str) -> Sequence[Part]:
        """In the order they were applied."""

    def versions_of(self, subject_id: UUID, above: int) -> frozenset[int]:
        """The versions above that one which jobs for the subject have made."""


class DerivedRepository(Protocol):
    """Declared columns and views."""

    def add_column(self, column: ComputedColumn) -> None:
        """Raises ConcurrentModification when one of its names has a function already."""

    def find_column(self, table_id: UUID, name: str) -> ComputedColumn | None:
        """The column of that name, or the siblings it is one of."""

    def list_columns(self, table_id: UUID) -> Sequence[ComputedColumn]: ...

    def list_auto_columns(self) -> Sequence[ComputedColumn]:
        """The columns of all tables that fill themselves."""

    def replace_function(self, column: ComputedColumn) -> None:
        """Gives the column of that id another function and inputs; what others covered stays recorded.

        With other inputs than before every value is outdated. Rows that a kept version skipped are no longer
        covered by it."""

    def bind_column(self, column: ComputedColumn) -> None:
        """Records the fields that the column of that id belongs to, and their names."""

    def rename_columns(self, table_id: UUID, names: Mapping[str, str]) -> None:
        """All at once, also where they are inputs of other columns. Columns nobody declared are fine."""

    def remove_column(self, table_id: UUID, name: str) -> None:
        """With its siblings and their coverage. A column nobody declared is fine."""

    def add_view(self, view: MaterializedView) -> None: ...

    def set_owner(self, view_id: UUID, owner: Caller) -> None: ...

    def find_view(self, view_id: UUID) -> MaterializedView | None: ...

    def list_views(self) -> Sequence[MaterializedView]:
        """All of them, by id."""

    def list_views_of(self, source_id: UUID) -> Sequence[MaterializedView]:
        """Those that have it among their sources, by id."""

    def list_auto_views(self) -> Sequence[MaterializedView]:
        """Those that refresh themselves, by id."""


class CoverageRepository(Protocol):
    def find(self, subject_id: UUID, digest: str) -> Coverage | None: ...

    def list_of(self, subject_id: UUID) -> Sequence[Coverage]:
        """Of every function version that values of the subject are of, by digest."""

    def segments_in_use(self) -> frozenset[str]:
        """The segments of all coverage."""

    def withdraw(
        self, subject_id: UUID, digest: str, rows: BitMap64, kept_digests: Collection[str] = ()
    ) -> None:
        """These rows hold values of `digest` now, and no longer of any other version.

        A restore may put back the files that hold the earlier values. So the marks of the others are dropped,
        except for those versions whose values are kept: they are looked at all the time.
        """

    def put(self, subject_id: UUID, coverage: Coverage) -> None:
        """Stores it as revision + 1 if the stored revision is still `coverage.revision` (0: none stored),
        else raises ConcurrentModification."""


class RowErrorLedger(Protocol):
    """Rows without a value because a function failed on them."""

    def settle(self, subject_id: UUID, done: BitMap64 | None, errors: Sequence[RowError]) -> None:
        """Forgets what is noted for the rows in `done` (None: all), then notes the errors, each row once."""

    def rows_of(self, subject_id: UUID, digest: str) -> BitMap64:
        """The skipped rows of that function version."""

    def count_of(self, subject_id: UUID, job_id: str) -> int:
        """How many of the subject's rows that job has skipped."""

    def list_of(
        self, subject_id: UUID, after: int | None, limit: int, job_id: str | None = None
    ) -> Sequence[RowError]:
        """By row id, those above `after`; only those of one job if it is given."""


class EnvironmentRepository(Protocol):
    """Environments under names, for jobs to ask for."""

    def put(self, name: str, environment: Environment) -> None: ...

    def find(self, name: str) -> Environment | None: ...

    def list_all(self) -> Sequence[tuple[str, Environment]]:
        """By name."""

    def remove(self, name: str) -> bool:
        """Whether there was one."""


class WorkerRegistry(Protocol):
    """Signs of life of workers, by the database's clock."""

    def beat(self, owner: str) -> None: ...

    def last_seen_at(self) -> datetime | None:
        """When any worker gave its last sign; None when none ever did."""


class NeighborNames(Protocol):
    """Names around a given one: at most `count` before it, and `count` from it on."""

    def objects(self, ident: TableIdent, count: int) -> Sequence[tuple[str, str]]:
        """Names of tables and views of both formats in the same namespace, each with its kind."""

    def namespaces(self, path: NamespacePath, count: int) -> Sequence[NamespacePath]:
        """Namespaces with the same parent."""

    def functions(self, name: str, count: int) -> Sequence[str]: ...

    def jobs(self, job_id: str, count: int) -> Sequence[tuple[str, TableIdent]]:
        """Ids of jobs, each with its table."""


class JobTransaction(CatalogTransaction, Protocol):
    """A catalog transaction that can touch the job engine's rows as well."""

    @property
    def jobs(self) -> JobRepository: ...
    @property
    def leases(self) -> JobLeases: ...
    @property
    def events(self) -> JobEvents: ...
    @property
    def parts(self) -> PartLedger: ...
    @property
    def derived(self) -> DerivedRepository: ...
    @property
    def coverage(self) -> CoverageRepository: ...
    @property
    def errors(self) -> RowErrorLedger: ...
    @property
    def environments(self) -> EnvironmentRepository: ...
    @property
    def workers(self) -> WorkerRegistry: ...
    @property
    def names(self) -> NeighborNames: ...

    def deferring(self) -> DeferredWrites: ...

    def apply(self, deferred: bytes) -> None:
        """Applies deferred writes; skips those that no longer apply."""


class DeferredWrites(Protocol):
    """Writes that take effect only if the manifest of a version gets its final name.

    `transaction` reads and checks like the transaction it was made from. It collects writes that belong to
    the content of the version (coverage, ledger, errors, columns, properties) and makes all others at once.
    """

    @property
    def transaction(self) -> JobTransaction: ...

    def packed(self) -> bytes | None:
        """The collected writes as bytes; None if there are none."""


TransactionEffect = Callable[[JobTransaction, int], None]
"""Work that becomes visible together with a version; receives the version number.

It runs in the transaction that reserves the version, through `JobTransaction.deferring`.
"""


class JobStore(Protocol):
    def transaction(self) -> AbstractContextManager[JobTransaction]: ...

    def reading(self) -> AbstractContextManager[JobTransaction]:
        """For what only reads: every statement sees all that was committed before it; none can write."""


class Publisher(Protocol):
    """Makes finished work visible, each call as one commit with `on_commit` in its database transaction.

    Conflicts with other writers are resolved inside: what is returned has happened.
    """

    def replace_column(
        self,
        table: Table,
        watched: Watched,
        files: Sequence[ColumnFile],
        on_commit: Callable[[Sequence[ColumnFile]], TransactionEffect],
    ) -> Published:
        """Puts the files that still fit their fragment in place; `on_commit` is told which those are.

        They hold the watched outputs.

        Raises TableColumnNotFound when one of the columns is no longer there.
        """

    def update_view(
        self,
        view: Table,
        base: int,
        columns: Sequence[str],
        written: WrittenRows,
        removed: BitMap64,
        on_commit: TransactionEffect,
    ) -> int:
        """Adds the fragments and removes these rows, those moved among them.

        Raises ViewRowsChanged when somebody has written since version `base` into rows moved, whose fragments
        hold what they had in other columns then, or into the view's own `columns`.
        """


class StageExecutor(Protocol):
    """Runs stages of work; raises RowFailed when a function raised, or what the watch raised."""

    def fill_column(self, stage: FillColumn, watch: StageWatch) -> Sequence[ColumnFile]: ...

    def compute_rows(self, stage: FillColumn, watch: StageWatch) -> Sequence[ComputedRows]:
        """Computes the values and checkpoints them, but writes no column file."""

    def write_view(self, stage: ViewStage, watch: StageWatch) -> WrittenRows:
        """Makes rows of a view and compares them with those it has."""


class StageWatch(Protocol):
    """What a running stage tells and asks."""

    def rows_done(self, rows: int) -> None:
        """Rows finished so far in this stage."""

    def check(self) -> None:
        """Raises JobCancelled, JobPaused or LeaseLost when the work should stop."""

    def tell(self, kind: str, data: dict[str, Any]) -> None:
        """Adds an event to the log of the job."""


class Checkpoints(Protocol):
    """Values that were computed and not published yet, and fingerprints of all that were."""

    def location(self, subject_id: UUID, digest: str, scope: str) -> str: ...

    def segment_location(self, subject_id: UUID, digest: str) -> str:
        """Where fingerprints are kept, for as long as there are results."""

    def merge_segments(self, location: str, segments: Sequence[str], rows: int) -> tuple[str, ...]:
        """The same fingerprints in few segments, given how many rows the table has."""

    def find_usable(
        self, location: str, table: Table, version: int, watched: Watched
    ) -> Sequence[CheckpointRef]:
        """What is there, with the rows whose inputs are at `version` what they were when it was computed."""

    def keep(self, location: str, table: Table, version: int, file: ColumnFile) -> None:
        """Saves the values of rows of a column file that left their fragment before it could be published."""

    def read(self, refs: Sequence[CheckpointRef], rows: BitMap64) -> pa.Table:
        """Columns `row_id` and `value` of those of the rows that are there."""

    def clear(self, location: str) -> None: ...


class ViewResults(Protocol):
    """What is kept of the results of views' functions: fingerprints of values, and unpublished results."""

    def find(self, subject_id: UUID, digest: str, scope: str, segments: Sequence[str]) -> KeptResults:
        """Where a function's results are kept, and the checkpoints there are; `segments` are passed on."""

    def merge_segments(self, kept: KeptResults, segments: Sequence[str], rows: int) -> tuple[str, ...]:
        """The same fingerprints in few files, given how many rows the source has."""

    def keep_only(self, kept: KeptResults, segments: Sequence[str]) -> None:
        """Removes all other segments of the function: left by tasks of failed attempts, or merged."""

    def clear_checkpoints(self, kept: KeptResults) -> None: ...
