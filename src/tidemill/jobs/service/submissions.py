"""Jobs from the outside: submit, look at, stop and resume."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID, uuid4, uuid5

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Page, Table
from tidemill.catalog.operations.visibility import list_visible, require_visible
from tidemill.catalog.ports import Authorizer
from tidemill.errors import InvalidInput
from tidemill.jobs.model.jobs import (
    DEFAULT_CLUSTER,
    Clusters,
    Job,
    JobEvent,
    JobFilter,
    JobKind,
    JobRevision,
    JobState,
    new_job_id,
)
from tidemill.jobs.model.options import (
    BackfillRequest,
    IndexRequest,
    JobRequest,
    PreviewRequest,
    RefreshRequest,
    RowSelection,
    VerifyRequest,
)
from tidemill.jobs.planning.backfill import find_outlived_failures
from tidemill.jobs.planning.column_progress import Assessor, DeclaredColumn
from tidemill.jobs.ports import JobStore
from tidemill.jobs.service.environments import EnvironmentOperations
from tidemill.jobs.service.job_changes import JobChanges
from tidemill.jobs.service.source_visibility import (
    REASON_IS_HIDDEN,
    sees_sources,
    shown_events,
    shown_jobs,
)
from tidemill.jobs.table_ports import SourceTables, TableVersions
from tidemill.jobs.views.behavior import DeclaredView
from tidemill.jobs.views.kinds import behavior_of
from tidemill.jobs.views.progress import ViewAssessor


class JobOperations:
    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        versions: TableVersions,
        sources: SourceTables,
        assessor: Assessor,
        views: ViewAssessor,
        clusters: Clusters,
        environments: EnvironmentOperations,
        wake_worker: Callable[[], None],
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._versions = versions
        self._sources = sources
        self._assessor = assessor
        self._views = views
        self._clusters = clusters
        self._environments = environments
        self._wake_worker = wake_worker
        self.changes = JobChanges(self._revisions)

    def submit_backfill(
        self, caller: Caller, ident: TableIdent, request: BackfillRequest, idempotency_key: str | None
    ) -> Job:
        declared = self._declared(caller, ident, request)
        check_read_version(declared, request, self._versions, self._assessor)
        check_selection(declared, request, self._assessor)
        request = self._environments.resolved(caller, request)
        subject_id = declared.subject_id
        return self._submit(caller, declared.table, JobKind.BACKFILL, subject_id, request, idempotency_key)

    def submit_preview(
        self, caller: Caller, ident: TableIdent, request: PreviewRequest, idempotency_key: str | None
    ) -> Job:
        """A preview stands in nobody's way, so it is a subject of its own."""
        declared = self._declared(caller, ident, request)
        request = self._environments.resolved(caller, request)
        subject_id = uuid5(declared.subject_id, idempotency_key or str(uuid4()))
        return self._submit(caller, declared.table, JobKind.PREVIEW, subject_id, request, idempotency_key)

    def submit_refresh(
        self, caller: Caller, ident: TableIdent, request: RefreshRequest, idempotency_key: str | None
    ) -> Job:
        declared = self._declared_view(caller, ident, request)
        request = self._environments.resolved(caller, request)
        subject_id = declared.view.view_id
        return self._submit(caller, declared.table, JobKind.REFRESH, subject_id, request, idempotency_key)

    def submit_verify(
        self, caller: Caller, ident: TableIdent, request: VerifyRequest, idempotency_key: str | None
    ) -> Job:
        """A verification stands in nobody's way, so it is a subject of its own."""
        declared = self._declared_view(caller, ident, request)
        subject_id = uuid5(declared.view.view_id, idempotency_key or str(uuid4()))
        return self._submit(caller, declared.table, JobKind.VERIFY, subject_id, request, idempotency_key)

    def submit_index(
        self, caller: Caller, table: Table, request: IndexRequest, idempotency_key: str | None
    ) -> Job:
        """For the one who has looked at the request: one job at a time for each name on each branch."""
        subject_id = uuid5(table.table_id, f"{request.branch}/{request.name}")
        return self._submit(caller, table, JobKind.INDEX, subject_id, request, idempotency_key)

    def get(self, caller: Caller, job_id: str) -> Job:
        with self._store.reading() as tx:
            job = tx.jobs.get(job_id)
            self._authorizer.require(caller, Permission.READ, job.table)
            return shown_jobs(tx, self._authorizer, caller, [job])[0]

    def list_recent(
        self,
        caller: Caller,
        before: str | None,
        limit: int,
        *,
        table: TableIdent | None = None,
        kind: JobKind | None = None,
        state: JobState | None = None,
    ) -> Sequence[Job]:
        """Those of tables that the caller sees, the latest first."""
        if table is None:
            require_visible(self._authorizer, caller, NamespacePath())
        else:
            self._authorizer.require(caller, Permission.READ, table)
        with self._store.reading() as tx:
            table_id = None if table is None else tx.tables.get(table).table_id
            wanted = JobFilter(table_id, kind=kind, state=state)
            jobs = list_visible(
                Page(before, limit),
                fetch=lambda part: tx.jobs.list_recent(part.after, limit, wanted),
                name_of=lambda job: job.job_id,
                is_visible=lambda job: self._authorizer.sees(caller, job.table),
            )
            return shown_jobs(tx, self._authorizer, caller, jobs)

    def cancel(self, caller: Caller, job_id: str) -> Job:
        job = self.get(caller, job_id)
        self._authorizer.require(caller, Permission.COMPUTE, job.table)
        with self._store.transaction() as tx:
            cancelled = tx.jobs.request_cancel(job_id)
            tx.events.append(job_id, "cancel_requested", {"by": caller.principal})
        return cancelled

    def pause(self, caller: Caller, job_id: str) -> Job:
        """PAUSED at once if no worker has it; else RUNNING until the worker comes to a safe point."""
        job = self.get(caller, job_id)
        self._authorizer.require(caller, Permission.COMPUTE, job.table)
        with self._store.transaction() as tx:
            paused = tx.jobs.request_pause(job_id)
            tx.events.append(job_id, "pause_requested", {"by": caller.principal})
        return paused

    def resume(self, caller: Caller, job_id: str) -> Job:
        """QUEUED again; RUNNING if it was not paused, or not yet: then it will not be."""
        job = self.get(caller, job_id)
        self._authorizer.require(caller, Permission.COMPUTE, job.table)
        with self._store.transaction() as tx:
            resumed = tx.jobs.resume(job_id)
            tx.events.append(job_id, "resumed", {"by": caller.principal})
        self._wake_worker()
        return resumed

    def events(self, caller: Caller, job_id: str, after: int) -> Sequence[JobEvent]:
        job = self.get(caller, job_id)
        with self._store.reading() as tx:
            events = tx.events.list_after(job_id, after)
            return shown_events(tx, self._authorizer, caller, job, events)

    def _revisions(self, job_ids: Collection[str]) -> Mapping[str, JobRevision]:
        with self._store.reading() as tx:
            return tx.events.revisions(job_ids)

    def _declared(
        self, caller: Caller, ident: TableIdent, request: BackfillRequest | PreviewRequest
    ) -> DeclaredColumn:
        self._authorizer.require(caller, Permission.COMPUTE, ident)
        self._clusters.check(request.cluster)
        table = self._versions.get_branch(ident, request.branch or MAIN_BRANCH)
        declared = self._assessor.get_column(table, request.column)
        if request.where is not None:
            self._sources.check_where(declared.table, request.where)
        return declared

    def _declared_view(
        self, caller: Caller, ident: TableIdent, request: RefreshRequest | VerifyRequest
    ) -> DeclaredView:
        self._authorizer.require(caller, Permission.COMPUTE, ident)
        self._clusters.check(request.cluster)
        table = self._table(ident)
        try:
            declared = self._views.get_view(table)
            if isinstance(request, RefreshRequest):
                check_refresh(declared, request, self._versions)
        except InvalidInput as error:
            with self._store.reading() as tx:
                view = tx.derived.find_view(table.table_id)
                if view is None or sees_sources(tx, self._authorizer, caller, view):
                    raise
            raise InvalidInput(error.field, f"cannot be done with {ident} now; {REASON_IS_HIDDEN}") from None
        return declared

    def _table(self, ident: TableIdent) -> Table:
        with self._store.reading() as tx:
            return tx.tables.get(ident)

    def _cluster_of(self, request: JobRequest) -> str:
        if isinstance(request, IndexRequest):
            return DEFAULT_CLUSTER
        return self._clusters.check(request.cluster)

    def _submit(
        self,
        caller: Caller,
        table: Table,
        kind: JobKind,
        subject_id: UUID,
        request: JobRequest,
        idempotency_key: str | None,
    ) -> Job:
        with self._store.transaction() as tx:
            if idempotency_key is not None:
                earlier = tx.jobs.find_by_key(caller.principal, idempotency_key)
                if earlier is not None:
                    _check_same(earlier, subject_id, request)
                    return earlier
            job = Job(
                job_id=new_job_id(),
                kind=kind,
                table_id=table.table_id,
                table=table.ident,
                subject_id=subject_id,
                request=request,
                state=JobState.QUEUED,
                submitted_by=caller.principal,
                created_at=tx.now(),
                idempotency_key=idempotency_key,
                cluster=self._cluster_of(request),
            )
            tx.jobs.add(job)
            tx.events.append(job.job_id, "submitted", {"by": caller.principal})
        self._wake_worker()
        return job


def _check_same(earlier: Job, subject_id: UUID, request: JobRequest) -> None:
    if earlier.subject_id != subject_id or earlier.request != request:
        raise InvalidInput("Idempotency-Key", f"was used before for another request, job {earlier.job_id}")


def check_read_version(
    declared: DeclaredColumn, request: BackfillRequest, versions: TableVersions, assessor: Assessor
) -> None:
    """Raises InvalidInput with the field."""
    version = request.read_version
    if version is None:
        return
    if versions.find(declared.table, version) is None:
        raise InvalidInput("read_version", f"{declared.table.ident} has no version {version}")
    assessor.check_version(declared, version, "read_version")


def check_selection(declared: DeclaredColumn, request: BackfillRequest, assessor: Assessor) -> None:
    """Raises InvalidInput if failed rows are asked for, and the function they failed with is another one now.

    Such a job would do nothing, while every value needs to be computed.
    """
    if request.only is not RowSelection.FAILED:
        return
    problem = find_outlived_failures(assessor.column_progress(declared, request))
    if problem is not None:
        raise InvalidInput("only", f"no row of '{request.column}' is failed: {problem}")


def check_refresh(declared: DeclaredView, request: RefreshRequest, versions: TableVersions) -> None:
    """Raises InvalidInput with the field, for what would change the rows of the view if it were ignored."""
    ident, behavior = declared.table.ident, behavior_of(declared.view)
    if request.output_limit is not None and not behavior.can_be_capped:
        raise InvalidInput("output_limit", f"is for chunker views; {ident} is of kind {declared.view.kind}")
    version = request.source_version
    if version is None:
        return
    if len(declared.sources) > 1:
        raise InvalidInput("src_version", f"{ident} has {len(declared.sources)} sources; leave it out")
    if versions.find(declared.source, version) is None:
        raise InvalidInput("src_version", f"{declared.source.ident} has no version {version}")
