"""A real application over small operations that live in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.errors import NamespaceNotFound, TableAlreadyExists, TableNotFound
from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.functions import Function
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.namespaces import CreateMode, DropBehavior, DropMode, Namespace
from tidemill.catalog.model.tables import (
    InsertMode,
    Page,
    Table,
    TableDescription,
    TableQuery,
    TableVersion,
    VersionEntry,
    WriteResult,
)
from tidemill.catalog.operations.functions import FunctionOperations
from tidemill.catalog.operations.namespaces import NamespaceOperations
from tidemill.catalog.operations.rows import RowOperations
from tidemill.catalog.operations.tables import Declared, TableOperations
from tidemill.catalog.operations.versions import Order, VersionOperations
from tidemill.jobs.errors import InvalidJobTransition, JobNotFound
from tidemill.jobs.model.jobs import BackfillRequest, Job, JobEvent, JobKind, RefreshRequest
from tidemill.jobs.model.plans import BackfillPlan, FragmentWork, RefreshPlan
from tidemill.jobs.model.state import JobState
from tidemill.jobs.operations.columns import ColumnDeclaration, ColumnOperations
from tidemill.jobs.operations.explain import Explainer
from tidemill.jobs.operations.submissions import JobOperations
from tidemill.jobs.operations.views import CreatedView, ViewDefinition, ViewOperations
from tidemill.protocols.app import create_app
from tidemill.protocols.http.call import Callers, local_caller
from tidemill.protocols.http.limits import Limits
from tidemill.protocols.http.operations import HealthReport, Operations

SOME_ID = UUID(int=7)
SOME_TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])


def page_of(names: Sequence[str], page: Page) -> list[str]:
    following = [name for name in sorted(names) if page.after is None or name > page.after]
    return following[: page.limit]


class Namespaces(NamespaceOperations):
    def __init__(self) -> None:
        self.properties: dict[tuple[str, ...], dict[str, str]] = {(): {}}
        self.fault: Exception | None = None

    def create(
        self, caller: Caller, path: NamespacePath, mode: CreateMode, properties: Mapping[str, str]
    ) -> Namespace:
        self.properties[path.levels] = dict(properties)
        return self.describe(caller, path)

    def list_children(self, caller: Caller, path: NamespacePath, page: Page) -> Sequence[str]:
        self.describe(caller, path)
        return page_of(
            [levels[-1] for levels in self.properties if levels and levels[:-1] == path.levels], page
        )

    def describe(self, caller: Caller, path: NamespacePath) -> Namespace:
        if self.fault is not None:
            raise self.fault
        if path.levels not in self.properties:
            raise NamespaceNotFound(path)
        return Namespace(SOME_ID, path, self.properties[path.levels])

    def drop(self, caller: Caller, path: NamespacePath, mode: DropMode, behavior: DropBehavior) -> None:
        del self.properties[path.levels]


class Tables(TableOperations):
    def __init__(self) -> None:
        self.rows: dict[tuple[str, ...], pa.Table | None] = {}

    def create(
        self,
        caller: Caller,
        ident: TableIdent,
        rows: pa.RecordBatchReader,
        mode: CreateMode,
        properties: Mapping[str, str],
    ) -> TableDescription:
        if ident.levels in self.rows and mode is CreateMode.CREATE:
            raise TableAlreadyExists(ident)
        self.rows[ident.levels] = rows.read_all()
        return self.describe(caller, ident)

    def declare(self, caller: Caller, ident: TableIdent, properties: Mapping[str, str]) -> Table:
        self.rows[ident.levels] = None
        return Table(SOME_ID, ident, "/warehouse/7", properties=properties)

    def describe(self, caller: Caller, ident: TableIdent, version: int | None = None) -> TableDescription:
        if ident.levels not in self.rows:
            raise TableNotFound(ident)
        table, rows = Table(SOME_ID, ident, "/warehouse/a b/7"), self.rows[ident.levels]
        if rows is None:
            return TableDescription(table, None, None)
        return TableDescription(table, table_version(version or 1), rows.schema)

    def list_in(self, caller: Caller, path: NamespacePath, page: Page, declared: Declared) -> Sequence[str]:
        names = [
            levels[-1]
            for levels, rows in self.rows.items()
            if levels[:-1] == path.levels and (rows is not None or declared is Declared.INCLUDE)
        ]
        return page_of(names, page)

    def drop(self, caller: Caller, ident: TableIdent) -> Table:
        table = self.describe(caller, ident).table
        del self.rows[ident.levels]
        return table


class Rows(RowOperations):
    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.queries: list[TableQuery] = []

    def insert(
        self, caller: Caller, ident: TableIdent, rows: pa.RecordBatchReader, mode: InsertMode
    ) -> WriteResult:
        return WriteResult(2, rows.read_all().num_rows)

    def query(self, caller: Caller, ident: TableIdent, query: TableQuery) -> pa.Table:
        self.queries.append(query)
        return self.tables.rows[ident.levels]

    def count_rows(
        self, caller: Caller, ident: TableIdent, predicate: str | None, version: int | None
    ) -> int:
        return 42


class Versions(VersionOperations):
    def __init__(self) -> None:
        self.entries: list[VersionEntry] = []

    def create(self, caller: Caller, ident: TableIdent, branch: str, entry: VersionEntry) -> TableVersion:
        self.entries.append(entry)
        return table_version(entry.version)

    def list_versions(
        self, caller: Caller, ident: TableIdent, branch: str, order: Order, page: Page
    ) -> Sequence[TableVersion]:
        numbers = sorted((entry.version for entry in self.entries), reverse=order is Order.DESCENDING)
        if page.after is not None:
            numbers = numbers[numbers.index(int(page.after)) + 1 :]
        return [table_version(number) for number in numbers[: page.limit]]

    def describe(self, caller: Caller, ident: TableIdent, branch: str, version: int | None) -> TableVersion:
        return table_version(version or max(entry.version for entry in self.entries))


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


class Stand:
    """The application with everything a test may look into."""

    def __init__(self, limits: Limits | None = None, callers: Callers = local_caller) -> None:
        self.namespaces = Namespaces()
        self.tables = Tables()
        self.rows = Rows(self.tables)
        self.versions = Versions()
        self.functions = Functions()
        self.columns = Columns()
        self.views = Views()
        self.jobs = Jobs()
        self.health = Health()
        self.plans = Plans()
        operations = Operations(
            self.namespaces,
            self.tables,
            self.rows,
            self.versions,
            self.functions,
            self.columns,
            self.views,
            self.jobs,
            self.plans,
            self.health,
        )
        self.app = create_app(operations, limits or Limits(), callers)

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self._send(method, path, options))

    async def _send(self, method: str, path: str, options: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.request(method, path, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.send("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.send("POST", path, **options)


def table_version(number: int) -> TableVersion:
    path = f"warehouse/7/_versions/{number}.manifest"
    return TableVersion(SOME_ID, "main", number, path, path, 100, SOME_TIME)


def some_job(
    job_id: str,
    ident: TableIdent,
    request: BackfillRequest | RefreshRequest,
    state: JobState = JobState.QUEUED,
) -> Job:
    kind = JobKind.BACKFILL if isinstance(request, BackfillRequest) else JobKind.REFRESH
    return Job(job_id, kind, SOME_ID, ident, SOME_ID, request, state, "local", SOME_TIME)


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def some_rows(count: int = 3) -> pa.Table:
    return pa.table({"id": list(range(count)), "text": [f"row {number}" for number in range(count)]}, SCHEMA)
