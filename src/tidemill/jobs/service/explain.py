"""What a job would do and why, before anything is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from uuid import UUID

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.catalog.ports import Authorizer
from tidemill.jobs.model.jobs import Clusters, Job, JobFilter, JobKind, JobState
from tidemill.jobs.model.options import BackfillRequest, RefreshRequest
from tidemill.jobs.model.plans import BackfillExplanation, RefreshExplanation, RefreshPlan
from tidemill.jobs.model.views import RefreshPolicy
from tidemill.jobs.planning.backfill import ColumnProgress, plan_backfill
from tidemill.jobs.planning.column_progress import Assessor, DeclaredColumn
from tidemill.jobs.ports import JobStore
from tidemill.jobs.service.environments import EnvironmentOperations
from tidemill.jobs.service.pace import expected_idle_seconds, expected_seconds, past_job
from tidemill.jobs.service.source_visibility import require_sources
from tidemill.jobs.service.submissions import check_read_version, check_refresh
from tidemill.jobs.stage_errors import RefreshWouldBeFull
from tidemill.jobs.table_ports import TableVersions
from tidemill.jobs.views.behavior import DeclaredView
from tidemill.jobs.views.progress import ViewAssessor

# Number of earlier jobs whose speed is considered; many of them may have had nothing to do.
PAST_JOBS: Final = 20


class Explainer:
    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        versions: TableVersions,
        assessor: Assessor,
        views: ViewAssessor,
        clusters: Clusters,
        environments: EnvironmentOperations,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._versions = versions
        self._assessor = assessor
        self._views = views
        self._clusters = clusters
        self._environments = environments

    def backfill(self, caller: Caller, ident: TableIdent, request: BackfillRequest) -> BackfillExplanation:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self._versions.get_branch(ident, request.branch or MAIN_BRANCH)
        declared = self._assessor.get_column(table, request.column)
        check_read_version(declared, request, self._versions, self._assessor)
        self._environments.resolve(caller, request.manifest)
        progress = self._assessor.column_progress(declared, request)
        plan = plan_backfill(progress, request, self._clusters.slots(request.cluster))
        conflicts = (*self._rivals(declared), *_costs(progress))
        seconds = self._expected_seconds(declared.subject_id, plan.rows, is_empty=plan.is_empty)
        return BackfillExplanation(plan, seconds, conflicts)

    def refresh(self, caller: Caller, ident: TableIdent, request: RefreshRequest) -> RefreshExplanation:
        self._authorizer.require(caller, Permission.READ, ident)
        self._clusters.check(request.cluster)
        with self._store.transaction() as tx:
            table = tx.tables.get(ident)
            view = tx.derived.find_view(table.table_id)
            if view is not None:
                require_sources(tx, self._authorizer, caller, ident, view)
        declared = self._views.get_view(table)
        check_refresh(declared, request, self._versions)
        self._environments.resolve(caller, request.manifest)
        plan = self._views.plan(declared, request)
        conflicts = [*self._view_rivals(declared), *_refusals(declared, request, plan)]
        # Jobs count source rows whether they pass the filter or not.
        seconds = self._expected_seconds(declared.view.view_id, plan.rows, is_empty=plan.is_empty)
        passing = self._views.count_passing(declared, plan)
        return RefreshExplanation(replace(plan, rows=passing), seconds, tuple(conflicts))

    def _view_rivals(self, declared: DeclaredView) -> list[str]:
        with self._store.transaction() as tx:
            active = tx.jobs.list_active(declared.table.table_id)
        return [
            f"job {job.job_id} is refreshing this view; another one is refused until it has ended"
            for job in active
            if job.subject_id == declared.view.view_id
        ]

    def _rivals(self, declared: DeclaredColumn) -> list[str]:
        """Jobs that stand in the way, or make this one look again."""
        with self._store.transaction() as tx:
            active = tx.jobs.list_active(declared.table.table_id)
        return [_rivalry(job, declared) for job in active if job.kind is not JobKind.PREVIEW]

    def _expected_seconds(self, subject_id: UUID, rows: int, *, is_empty: bool) -> float | None:
        wanted = JobFilter(subject_id=subject_id, state=JobState.DONE)
        with self._store.transaction() as tx:
            jobs = tx.jobs.list_recent(None, PAST_JOBS, wanted)
        past = [found for found in map(past_job, jobs) if found is not None]
        return expected_idle_seconds(past) if is_empty else expected_seconds(past, rows)


def _refusals(declared: DeclaredView, request: RefreshRequest, plan: RefreshPlan) -> list[str]:
    """The first filling of a view is never refused."""
    is_first = any(change.from_version is None for change in plan.changes)
    if declared.policy(request) is not RefreshPolicy.INCREMENTAL or not plan.is_full or is_first:
        return []
    return [str(RefreshWouldBeFull(declared.table.ident, plan.reason))]


def _rivalry(job: Job, declared: DeclaredColumn) -> str:
    if job.subject_id == declared.subject_id:
        return f"job {job.job_id} is filling this column; another one is refused until it has ended"
    what = f"column '{job.column}'" if job.column else "the table"
    return f"{job.kind} job {job.job_id} works on {what} of the same table; its commits and ours go together"


def _costs(progress: ColumnProgress) -> list[str]:
    if progress.snapshot.has_stable_row_ids:
        return []
    return ["the table has no stable row ids: rows that an update or a compaction moved are computed again"]
