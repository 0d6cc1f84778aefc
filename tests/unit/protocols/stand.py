"""A real application over small operations that live in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import httpx
import pyarrow as pa

from tests.unit.protocols.stand_in import stand_in
from tests.unit.protocols.stand_jobs import (
    SOME_ID,
    SOME_TIME,
    Columns,
    Environments,
    Functions,
    Health,
    Jobs,
    Lineages,
    Plans,
    Provenance,
    Views,
    ViewStatuses,
)
from tidemill.catalog.errors import BranchNotFound, NamespaceNotFound, TableAlreadyExists, TableNotFound
from tidemill.catalog.model.identifiers import CreateMode, Namespace, NamespacePath, TableIdent, table_ident
from tidemill.catalog.model.tables import (
    MAIN_BRANCH,
    Declared,
    Page,
    Table,
    TableVersion,
    VersionEntry,
    WriteResult,
)
from tidemill.catalog.operations.functions import FunctionOperations
from tidemill.catalog.operations.namespaces import NamespaceOperations
from tidemill.jobs.service.columns import ColumnOperations
from tidemill.jobs.service.explain import Explainer
from tidemill.jobs.service.lineage import Lineage
from tidemill.jobs.service.missing_names import NameHints
from tidemill.jobs.service.status import ColumnProvenance, ViewStatusOperations
from tidemill.jobs.service.submissions import JobOperations
from tidemill.jobs.service.views import ViewOperations
from tidemill.lance.model.edits import EditResult, RowMerge, RowUpdate
from tidemill.lance.model.queries import QueryResult, TableQuery
from tidemill.lance.model.tables import TableDescription, TablePoint, TableSummary
from tidemill.lance.rows import RowOperations
from tidemill.lance.tables import TableOperations
from tidemill.lance.versions.commit import Order, VersionOperations
from tidemill.protocols.app import create_app
from tidemill.protocols.http.call import CallerResolver, Limits, local_caller
from tidemill.protocols.http.operations import Operations

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])


def page_of(names: Sequence[str], page: Page) -> list[str]:
    following = [name for name in sorted(names) if page.after is None or name > page.after]
    return following[: page.limit]


class Namespaces:
    def __init__(self) -> None:
        self.properties: dict[tuple[str, ...], dict[str, str]] = {(): {}}
        self.fault: Exception | None = None

    def create(self, path: NamespacePath, properties: Mapping[str, str]) -> Namespace:
        self.properties[path.levels] = dict(properties)
        return self.describe(path)

    def list_children(self, path: NamespacePath, page: Page) -> Sequence[str]:
        self.describe(path)
        return page_of(
            [levels[-1] for levels in self.properties if levels and levels[:-1] == path.levels], page
        )

    def describe(self, path: NamespacePath) -> Namespace:
        if self.fault is not None:
            raise self.fault
        if path.levels not in self.properties:
            raise NamespaceNotFound(path)
        return Namespace(SOME_ID, path, self.properties[path.levels])

    def drop(self, path: NamespacePath) -> None:
        del self.properties[path.levels]


class Tables:
    def __init__(self) -> None:
        self.rows: dict[tuple[str, ...], pa.Table | None] = {}
        self.options: dict[str, str] = {}

    def create(self, ident: TableIdent, rows: pa.RecordBatchReader, mode: CreateMode) -> TableDescription:
        if ident.levels in self.rows and mode is CreateMode.CREATE:
            raise TableAlreadyExists(ident)
        self.rows[ident.levels] = rows.read_all()
        return self.describe(ident)

    def declare(self, ident: TableIdent, properties: Mapping[str, str], location: str | None = None) -> Table:
        self.rows[ident.levels] = None
        return Table(SOME_ID, ident, location or "/warehouse/7", properties=properties)

    def describe(self, ident: TableIdent, point: TablePoint | None = None) -> TableDescription:
        point = point or TablePoint()
        if ident.levels not in self.rows:
            raise TableNotFound(ident)
        if point.branch is not None:
            raise BranchNotFound(ident, point.branch)
        table, rows = Table(SOME_ID, ident, "/warehouse/a b/7"), self.rows[ident.levels]
        if rows is None:
            return TableDescription(table, None, None)
        return TableDescription(table, table_version(point.version or 1), rows.schema)

    def check_exists(self, ident: TableIdent, point: TablePoint) -> None:
        self.describe(ident, point)

    def summary(self, description: TableDescription) -> TableSummary | None:
        return None if description.version is None else TableSummary(1, 2)

    def storage_options(self) -> Mapping[str, str]:
        return self.options

    def list_in(self, path: NamespacePath, page: Page, declared: Declared) -> Sequence[str]:
        return page_of([ident.name for ident in self.list_all(declared) if ident.namespace == path], page)

    def list_all(self, declared: Declared) -> Sequence[TableIdent]:
        return [
            table_ident(levels)
            for levels, rows in self.rows.items()
            if rows is not None or declared is Declared.INCLUDE
        ]

    def drop(self, ident: TableIdent) -> Table:
        table = self.describe(ident).table
        del self.rows[ident.levels]
        return table


class Rows:
    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.queries: list[TableQuery] = []
        self.edits: list[RowMerge | RowUpdate | str] = []
        self.branches: list[str] = []

    def insert(self, rows: pa.RecordBatchReader, branch: str = MAIN_BRANCH) -> WriteResult:
        self.branches.append(branch)
        return WriteResult(2, rows.read_all().num_rows)

    def merge(self, rows: pa.RecordBatchReader, merge: RowMerge, branch: str = MAIN_BRANCH) -> EditResult:
        self.edits.append(merge)
        self.branches.append(branch)
        return EditResult(2, inserted=rows.read_all().num_rows, updated=1)

    def update(self, update: RowUpdate, branch: str = MAIN_BRANCH) -> EditResult:
        self.edits.append(update)
        self.branches.append(branch)
        return EditResult(2, updated=3)

    def delete(self, predicate: str, branch: str = MAIN_BRANCH) -> EditResult:
        self.edits.append(predicate)
        self.branches.append(branch)
        return EditResult(2, deleted=3)

    def query(self, ident: TableIdent, query: TableQuery) -> QueryResult:
        self.queries.append(query)
        rows = self.tables.rows[ident.levels]
        assert rows is not None
        return QueryResult(1, arrow_file(rows))

    def explain(self, query: TableQuery, *, is_verbose: bool) -> str:
        self.queries.append(query)
        return "verbose plan" if is_verbose else "plan"

    def analyze(self, query: TableQuery) -> str:
        self.queries.append(query)
        return "analysis"

    def count_rows(self, version: int | None, branch: str = MAIN_BRANCH) -> tuple[int, int]:
        self.branches.append(branch)
        return 42, version or 1


class Versions:
    def __init__(self) -> None:
        self.entries: list[VersionEntry] = []

    def create(self, entry: VersionEntry) -> TableVersion:
        self.entries.append(entry)
        return table_version(entry.version)

    def list_versions(self, order: Order, page: Page) -> Sequence[TableVersion]:
        numbers = sorted((entry.version for entry in self.entries), reverse=order is Order.DESCENDING)
        if page.after is not None:
            numbers = numbers[numbers.index(int(page.after)) + 1 :]
        return [table_version(number) for number in numbers[: page.limit]]

    def describe(self, version: int | None) -> TableVersion:
        return table_version(version or max(entry.version for entry in self.entries))


class Hints:
    """Knows nothing about names, so that every refusal keeps its own message."""

    def message(self) -> str | None:
        return None


class Stand:
    """The application with everything a test may look into."""

    def __init__(self, limits: Limits | None = None, callers: CallerResolver = local_caller) -> None:
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
        self.provenance = Provenance()
        self.lineage = Lineages()
        self.view_status = ViewStatuses()
        self.environments = Environments()
        answered: dict[str, Any] = {
            "namespaces": stand_in(NamespaceOperations, self.namespaces),
            "tables": stand_in(TableOperations, self.tables),
            "rows": stand_in(RowOperations, self.rows),
            "versions": stand_in(VersionOperations, self.versions),
            "functions": stand_in(FunctionOperations, self.functions),
            "columns": stand_in(ColumnOperations, self.columns),
            "views": stand_in(ViewOperations, self.views),
            "jobs": stand_in(JobOperations, self.jobs),
            "explain": stand_in(Explainer, self.plans),
            "provenance": stand_in(ColumnProvenance, self.provenance),
            "lineage": stand_in(Lineage, self.lineage),
            "view_status": stand_in(ViewStatusOperations, self.view_status),
            "environments": self.environments,
            "name_hints": stand_in(NameHints, Hints()),
            "warehouse_name": "tidemill",
            "namespace_separator": "\x1f",
            "health": self.health,
        }
        # No test on this stand reaches the others; they are tested over a socket with everything real.
        others: dict[str, Any] = dict.fromkeys({field.name for field in fields(Operations)} - answered.keys())
        operations = Operations(**answered, **others)
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


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def arrow_file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def some_rows(count: int = 3) -> pa.Table:
    return pa.table({"id": list(range(count)), "text": [f"row {number}" for number in range(count)]}, SCHEMA)
