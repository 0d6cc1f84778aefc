"""Functions, columns, views, environments and jobs of the stand."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from tests.sealing import CipherInMemory
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Environment, Function, RegisteredFunction
from tidemill.catalog.model.identifiers import NamespacePath, Securable, TableIdent
from tidemill.jobs.errors import InvalidJobTransition, JobNotFound, ViewNotFound
from tidemill.jobs.model.columns import ColumnStatus, FunctionRows
from tidemill.jobs.model.failures import RowError
from tidemill.jobs.model.jobs import Job, JobEvent, JobKind, JobRevision, JobState
from tidemill.jobs.model.lineage import FunctionName, LineageEntry, ObjectKind, ObjectLineage, Through
from tidemill.jobs.model.options import (
    BackfillRequest,
    PreviewRequest,
    RefreshRequest,
    RowSelection,
    VerifyRequest,
)
from tidemill.jobs.model.plans import (
    BackfillExplanation,
    BackfillPlan,
    CommitGroup,
    FragmentWork,
    RefreshExplanation,
    RefreshMode,
    RefreshPlan,
    SourceChange,
)
from tidemill.jobs.service.columns import ColumnDeclaration
from tidemill.jobs.service.environments import EnvironmentOperations
from tidemill.jobs.service.job_changes import JobChanges
from tidemill.jobs.service.status import ViewStatus
from tidemill.jobs.service.views import CreatedView
from tidemill.jobs.views.definitions import ViewDefinition
from tidemill.protocols.http.operations import HealthReport

SOME_ID = UUID(int=7)
SomeRequest = BackfillRequest | PreviewRequest | RefreshRequest | VerifyRequest
SOME_TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Functions:
    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}

    def register(self, function: Function, namespace: NamespacePath) -> Function:
        return self.functions.setdefault(function.digest, function)

    def list_registered(self, namespace: NamespacePath | None) -> Sequence[RegisteredFunction]:
        at = datetime(2026, 1, 2, tzinfo=UTC)
        return [RegisteredFunction(function, 1, "local", at) for function in self.functions.values()]


class Columns:
    def __init__(self) -> None:
        self.declared: list[ColumnDeclaration] = []

    def declare(self, declarations: Sequence[ColumnDeclaration]) -> int:
        self.declared.extend(declarations)
        return 2


class Views:
    def __init__(self) -> None:
        self.created: list[ViewDefinition] = []

    def create(self, definition: ViewDefinition) -> CreatedView:
        self.created.append(definition)
        return CreatedView(1, "job-1" if definition.is_populated else None)


class Jobs:
    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.keys: list[str | None] = []
        self.fault: Exception | None = None
        self.looks = 0
        self.puts = 0
        self.changes = JobChanges(self.revisions)

    def submit(self, ident: TableIdent, request: SomeRequest, idempotency_key: str | None) -> Job:
        self.keys.append(idempotency_key)
        return self.put(some_job(f"job-{len(self.jobs) + 1}", ident, request))

    submit_backfill = submit_refresh = submit_preview = submit_verify = submit

    def put(self, job: Job) -> Job:
        self.jobs[job.job_id] = job
        self.puts += 1
        return job

    def revisions(self, job_ids: Collection[str]) -> Mapping[str, JobRevision]:
        if self.fault is not None:
            raise self.fault
        jobs = [job for job in list(self.jobs.values()) if job.job_id in job_ids]
        return {job.job_id: JobRevision(job.state, self.puts, SOME_TIME) for job in jobs}

    def get(self, job_id: str) -> Job:
        self.looks += 1
        if self.fault is not None:
            raise self.fault
        if job_id not in self.jobs:
            raise JobNotFound(job_id)
        return self.jobs[job_id]

    def list_recent(
        self,
        before: str | None,
        limit: int,
        *,
        table: TableIdent | None = None,
        kind: JobKind | None = None,
        state: JobState | None = None,
    ) -> Sequence[Job]:
        meant = [
            job
            for job in self.jobs.values()
            if table in (None, job.table) and kind in (None, job.kind) and state in (None, job.state)
        ]
        newest = sorted(meant, key=lambda job: job.job_id, reverse=True)
        return [job for job in newest if before is None or job.job_id < before][:limit]

    def cancel(self, job_id: str) -> Job:
        job = self.get(job_id)
        if job.state.is_final:
            raise InvalidJobTransition(job_id, job.state, JobState.CANCELLED)
        return job

    def pause(self, job_id: str) -> Job:
        return self.put(replace(self.get(job_id), pause_requested_at=SOME_TIME))

    def resume(self, job_id: str) -> Job:
        return self.put(replace(self.get(job_id), pause_requested_at=None))

    def events(self, job_id: str, after: int) -> Sequence[JobEvent]:
        self.get(job_id)
        return [JobEvent(job_id, number, SOME_TIME, "progress", {"done": number}) for number in (1, 2)][
            after:
        ]


class Plans:
    def __init__(self) -> None:
        self.expected_seconds: float | None = None
        change = SourceChange(("docs", "pages"), 2, 3, 0, 0, 0)
        self.refresh_plan = RefreshPlan(RefreshMode.NO_OP, "nothing changed", (change,), 0, rows_reused=5)

    def backfill(self, request: BackfillRequest) -> BackfillExplanation:
        groups = tuple(
            CommitGroup(((FragmentWork(number, None, rows),),)) for number, rows in enumerate((10, 5))
        )
        plan = BackfillPlan(3, groups, f"never computed: {request.column}", 2)
        return BackfillExplanation(plan, self.expected_seconds, ("job j is filling this column",))

    def refresh(self) -> RefreshExplanation:
        return RefreshExplanation(self.refresh_plan, self.expected_seconds, ("job j is refreshing it",))


class Provenance:
    """One column, `size`, and whatever rows and errors a test gives it."""

    def __init__(self) -> None:
        self.row_ids: dict[RowSelection, list[int]] = {}
        self.row_errors: list[tuple[str, RowError]] = []
        self.branches: list[str | None] = []

    def status(self, column: str, branch: str | None) -> ColumnStatus:
        self.branches.append(branch)
        functions = (FunctionRows("sha256:0", "length", 3, True),)
        return ColumnStatus(column, branch or "main", 4, 5, 3, 1, 1, 0, functions)

    def rows(
        self, branch: str | None, selection: RowSelection, after: int | None, limit: int
    ) -> Sequence[int]:
        self.branches.append(branch)
        found = self.row_ids.get(selection, [])
        return [row_id for row_id in found if after is None or row_id > after][:limit]

    def errors(
        self,
        column: str | None,
        branch: str | None,
        *,
        job_id: str | None = None,
        after: int | None = None,
        limit: int = 1000,
    ) -> Sequence[tuple[str, RowError]]:
        self.branches.append(branch)
        return [
            (name, error)
            for name, error in self.row_errors
            if column in (None, name)
            and job_id in (None, error.job_id)
            and (after is None or (error.failure.row_id or 0) > after)
        ][:limit]


class ViewStatuses:
    """The status that a test gives it, and errors by row id."""

    def __init__(self) -> None:
        self.given: ViewStatus | None = None
        self.row_errors: list[RowError] = []

    def status(self, ident: TableIdent) -> ViewStatus:
        if self.given is None:
            raise ViewNotFound(ident)
        return self.given

    def errors(
        self, *, job_id: str | None = None, after: int | None = None, limit: int = 1000
    ) -> Sequence[RowError]:
        return [
            error
            for error in self.row_errors
            if job_id in (None, error.job_id) and (after is None or (error.failure.row_id or 0) > after)
        ][:limit]


class Lineages:
    """Everything is made from `docs.pages` by a chunker, and from something that was dropped."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []

    def of(self, ident: TableIdent, column: str | None) -> ObjectLineage:
        self.asked.append(column)
        words = FunctionName("words", "sha256:0")
        pages = LineageEntry(("docs", "pages"), ObjectKind.TABLE, "text", Through.CHUNKER, words, 1)
        gone = LineageEntry(("gone",), ObjectKind.DROPPED, None, Through.PROJECTION, None, 2)
        return ObjectLineage(ident.levels, ObjectKind.VIEW, column, (pages, gone), ())


class KeptEnvironments:
    """The repository and the store around it."""

    def __init__(self) -> None:
        self.kept: dict[str, Environment] = {}

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        yield self

    reading = transaction

    @property
    def environments(self) -> KeptEnvironments:
        return self

    def put(self, name: str, environment: Environment) -> None:
        self.kept[name] = environment

    def find(self, name: str) -> Environment | None:
        return self.kept.get(name)

    def list_all(self) -> Sequence[tuple[str, Environment]]:
        return sorted(self.kept.items())

    def remove(self, name: str) -> bool:
        return self.kept.pop(name, None) is not None


class Environments(EnvironmentOperations):
    """The real operations over environments that live in memory; tells which permissions were asked for."""

    def __init__(self) -> None:
        self.asked: list[Permission] = []
        self.store = KeptEnvironments()
        self.cipher = CipherInMemory()
        super().__init__(self.store, self, self.cipher)

    def require(self, caller: Caller, permission: Permission, resource: Securable) -> None:
        self.asked.append(permission)

    def sees(self, caller: Caller, resource: Securable) -> bool:
        return True


BOTH: Final = {"database": True, "storage": True}


@dataclass
class Health:
    report: HealthReport = field(
        default_factory=lambda: HealthReport("ok", "0.1.0", "running", "ok", "ok", BOTH, BOTH)
    )

    def health(self) -> HealthReport:
        return self.report


def some_job(
    job_id: str,
    ident: TableIdent,
    request: SomeRequest,
    state: JobState = JobState.QUEUED,
) -> Job:
    kinds = {
        BackfillRequest: JobKind.BACKFILL,
        PreviewRequest: JobKind.PREVIEW,
        RefreshRequest: JobKind.REFRESH,
        VerifyRequest: JobKind.VERIFY,
    }
    kind = kinds[type(request)]
    return Job(job_id, kind, SOME_ID, ident, SOME_ID, request, state, "local", SOME_TIME)
