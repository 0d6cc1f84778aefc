"""What a job would do and why, before anything is done."""

from __future__ import annotations

from typing import Final

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.catalog.operations.versions import VersionOperations
from tidemill.catalog.ports import Authorizer
from tidemill.jobs.model.clusters import Clusters
from tidemill.jobs.model.jobs import BackfillRequest, Job, JobFilter, JobKind, RefreshRequest
from tidemill.jobs.model.plans import BackfillExplanation, BackfillPlan, RefreshPlan
from tidemill.jobs.model.state import JobState
from tidemill.jobs.operations.assess import Assessor, DeclaredColumn
from tidemill.jobs.planner.backfill import ColumnProgress, plan_backfill
from tidemill.jobs.planner.refresh import plan_refresh
from tidemill.jobs.ports import JobStore

# So many earlier jobs of the column are asked how fast they were.
PAST_JOBS: Final = 5


class Explainer:
    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        versions: VersionOperations,
        assessor: Assessor,
        clusters: Clusters,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._versions = versions
        self._assessor = assessor
        self._clusters = clusters

    def backfill(self, caller: Caller, ident: TableIdent, request: BackfillRequest) -> BackfillExplanation:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self._versions.get_branch(ident, request.branch or MAIN_BRANCH)
        declared = self._assessor.get_column(table, request.column)
        progress = self._assessor.column_progress(declared, request)
        plan = plan_backfill(progress, request, self._clusters.slots(request.cluster))
        conflicts = (*self._rivals(declared), *_costs(progress))
        return BackfillExplanation(plan, self._expected_seconds(declared, plan), conflicts)

    def refresh(self, caller: Caller, ident: TableIdent, request: RefreshRequest) -> RefreshPlan:
        self._authorizer.require(caller, Permission.READ, ident)
        with self._store.transaction() as tx:
            table = tx.tables.get(ident)
        declared = self._assessor.get_view(table)
        progress = self._assessor.view_progress(declared, request.source_version)
        return plan_refresh(progress, is_full=request.is_full)

    def _rivals(self, declared: DeclaredColumn) -> list[str]:
        """Jobs that stand in the way, or make this one look again."""
        with self._store.transaction() as tx:
            active = tx.jobs.list_active(declared.table.table_id)
        return [_rivalry(job, declared) for job in active if job.kind is not JobKind.PREVIEW]

    def _expected_seconds(self, declared: DeclaredColumn, plan: BackfillPlan) -> float | None:
        """From how long earlier jobs of the column took for a row."""
        if plan.is_empty:
            return 0.0
        wanted = JobFilter(subject_id=declared.subject_id, state=JobState.DONE)
        with self._store.transaction() as tx:
            past = tx.jobs.list_recent(None, PAST_JOBS, wanted)
        rows = sum(job.progress.computed for job in past)
        seconds = sum(_seconds(job) for job in past if job.progress.computed)
        return plan.rows * seconds / rows if rows else None


def _rivalry(job: Job, declared: DeclaredColumn) -> str:
    if job.subject_id == declared.subject_id:
        return f"job {job.job_id} is filling this column; another one is refused until it has ended"
    what = f"column '{job.column}'" if job.column else "the table"
    return f"{job.kind} job {job.job_id} works on {what} of the same table; its commits and ours go together"


def _costs(progress: ColumnProgress) -> list[str]:
    if progress.snapshot.has_stable_row_ids:
        return []
    return ["the table has no stable row ids: rows that an update or a compaction moved are computed again"]


def _seconds(job: Job) -> float:
    if job.started_at is None or job.finished_at is None:
        return 0.0
    return (job.finished_at - job.started_at).total_seconds()
