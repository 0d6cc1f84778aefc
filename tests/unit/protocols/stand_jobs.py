"""Functions, columns, views and jobs of the stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from pyroaring import BitMap64

from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.functions import Function
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.operations.functions import FunctionOperations
from tidemill.jobs.errors import InvalidJobTransition, JobNotFound
from tidemill.jobs.model.jobs import BackfillRequest, Job, JobEvent, JobKind, RefreshRequest
from tidemill.jobs.model.plans import BackfillPlan, FragmentWork, RefreshPlan
from tidemill.jobs.model.state import JobState
from tidemill.jobs.operations.columns import ColumnDeclaration, ColumnOperations
from tidemill.jobs.operations.explain import Explainer
from tidemill.jobs.operations.submissions import JobOperations
from tidemill.jobs.operations.views import CreatedView, ViewDefinition, ViewOperations
from tidemill.protocols.http.operations import HealthReport

SOME_ID = UUID(int=7)
SOME_TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Functions(FunctionOperations):
    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}

    def register(self, caller: Caller, function: Function) -> Function:
        return self.functions.setdefault(function.digest, function)

    def list_all(self, caller: Caller) -> Sequence[Function]:
        return list(self.functions.values())


class Columns(ColumnOperations):
    def __init__(self) -> None:
        self.declared: list[ColumnDeclaration] = []

    def declare(self, caller: Caller, ident: TableIdent, declarations: Sequence[ColumnDeclaration]) -> int:
        self.declared.extend(declarations)
        return 2


class Views(ViewOperations):
    def __init__(self) -> None:
        self.created: list[ViewDefinition] = []

    def create(self, caller: Caller, ident: TableIdent, definition: ViewDefinition) -> CreatedView:
        self.created.append(definition)
        return CreatedView(1, "job-1" if definition.is_populated else None)


class Jobs(JobOperations):
    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.keys: list[str | None] = []

    def submit_backfill(
        self, caller: Caller, ident: TableIdent, request: BackfillRequest, idempotency_key: str | None
    ) -> Job:
        self.keys.append(idempotency_key)
        return self.put(some_job(f"job-{len(self.jobs) + 1}", ident, request))

    def submit_refresh(
        self, caller: Caller, ident: TableIdent, request: RefreshRequest, idempotency_key: str | None
    ) -> Job:
        self.keys.append(idempotency_key)
        return self.put(some_job(f"job-{len(self.jobs) + 1}", ident, request))

    def put(self, job: Job) -> Job:
        self.jobs[job.job_id] = job
        return job

    def get(self, caller: Caller, job_id: str) -> Job:
        if job_id not in self.jobs:
            raise JobNotFound(job_id)
        return self.jobs[job_id]

    def list_recent(self, caller: Caller, before: str | None, limit: int) -> Sequence[Job]:
        newest = sorted(self.jobs.values(), key=lambda job: job.job_id, reverse=True)
        return [job for job in newest if before is None or job.job_id < before][:limit]

    def cancel(self, caller: Caller, job_id: str) -> Job:
        job = self.get(caller, job_id)
        if job.state.is_final:
            raise InvalidJobTransition(job_id, job.state, JobState.CANCELLED)
        return job

    def events(self, caller: Caller, job_id: str, after: int) -> Sequence[JobEvent]:
        self.get(caller, job_id)
        return [JobEvent(job_id, number, SOME_TIME, "progress", {"done": number}) for number in (1, 2)][
            after:
        ]


class Plans(Explainer):
    def __init__(self) -> None:
        self.refresh_plan = RefreshPlan(3, (), BitMap64(), False, "nothing changed", 5, 0, 0)

    def backfill(self, caller: Caller, ident: TableIdent, request: BackfillRequest) -> BackfillPlan:
        work = FragmentWork(0, None, 10), FragmentWork(1, None, 5)
        return BackfillPlan(3, ((work[0],), (work[1],)), f"never computed: {request.column}", 2)

    def refresh(self, caller: Caller, ident: TableIdent, request: RefreshRequest) -> RefreshPlan:
        return self.refresh_plan


@dataclass
class Health:
    report: HealthReport = field(default_factory=lambda: HealthReport("ok", "0.1.0", "running", "ok", "ok"))

    def health(self) -> HealthReport:
        return self.report


def some_job(
    job_id: str,
    ident: TableIdent,
    request: BackfillRequest | RefreshRequest,
    state: JobState = JobState.QUEUED,
) -> Job:
    kind = JobKind.BACKFILL if isinstance(request, BackfillRequest) else JobKind.REFRESH
    return Job(job_id, kind, SOME_ID, ident, SOME_ID, request, state, "local", SOME_TIME)
