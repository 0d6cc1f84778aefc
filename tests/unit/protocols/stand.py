"""A real application over small operations that live in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pyarrow as pa

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
from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.dml import EditResult, RowMerge, RowUpdate
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent, table_ident
from tidemill.catalog.model.namespaces import CreateMode, DropBehavior, DropMode, Namespace
from tidemill.catalog.model.queries import QueryResult, TableQuery
from tidemill.catalog.model.tables import (
    MAIN_BRANCH,
    Declared,
    InsertMode,
    Page,
    Table,
    TableDescription,
    TablePoint,
    TableSummary,
    TableVersion,
    VersionEntry,
    WriteResult,
)
from tidemill.catalog.operations.namespaces import NamespaceOperations
from tidemill.catalog.operations.receipts import Mutation
from tidemill.catalog.operations.rows import RowOperations
from tidemill.catalog.operations.tables import TableOperations
from tidemill.catalog.operations.versions import Order, VersionOperations
from tidemill.protocols.app import create_app
from tidemill.protocols.http.call import CallerResolver, local_caller
from tidemill.protocols.http.limits import Limits
from tidemill.protocols.http.operations import Operations

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])


def page_of(names: Sequence[str], page: Page) -> list[str]:
    following = [name for name in sorted(names) if page.after is None or name > page.after]
    return following[: page.limit]


class Namespaces(NamespaceOperations):
    def __init__(self) -> None:
        self.properties: dict[tuple[str, ...], dict[str, str]] = {(): {}}
        self.fault: Exception | None = None

    def create(
        self,
        mutation: Mutation[Namespace],
        path: NamespacePath,
        mode: CreateMode,
        properties: Mapping[str, str],
    ) -> Namespace:
        self.properties[path.levels] = dict(properties)
        return self.describe(mutation.caller, path)

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

    def drop(
        self,
        mutation: Mutation[None],
        path: NamespacePath,
        mode: DropMode,
        behavior: DropBehavior,
    ) -> None:
        del self.properties[path.levels]


class Tables(TableOperations):
    def __init__(self) -> None:
        self.rows: dict[tuple[str, ...], pa.Table | None] = {}
        self.options: dict[str, str] = {}

    def create(
        self,
        caller: Caller,
        ident: TableIdent,
        rows: pa.RecordBatchReader,
        mode: CreateMode,
        properties: Mapping[str, str],
        location: str | None = None,
    ) -> TableDescription:
        if ident.levels in self.rows and mode is CreateMode.CREATE:
            raise TableAlreadyExists(ident)
        self.rows[ident.levels] = rows.read_all()
        return self.describe(caller, ident)

    def declare(
        self,
        caller: Caller,
        ident: TableIdent,
        properties: Mapping[str, str],
        location: str | None = None,
    ) -> Table:
        self.rows[ident.levels] = None
        return Table(SOME_ID, ident, location or "/warehouse/7", properties=properties)

    def describe(
        self, caller: Caller, ident: TableIdent, point: TablePoint | None = None
    ) -> TableDescription:
        point = point or TablePoint()
        if ident.levels not in self.rows:
            raise TableNotFound(ident)
        if point.branch is not None:
            raise BranchNotFound(ident, point.branch)
        table, rows = Table(SOME_ID, ident, "/warehouse/a b/7"), self.rows[ident.levels]
        if rows is None:
            return TableDescription(table, None, None)
        return TableDescription(table, table_version(point.version or 1), rows.schema)

    def check_exists(self, caller: Caller, ident: TableIdent, point: TablePoint) -> None:
        self.describe(caller, ident, point)

    def summary(self, description: TableDescription) -> TableSummary | None:
        return None if description.version is None else TableSummary(1, 2)

    def storage_options(self, caller: Caller, table: Table) -> Mapping[str, str]:
        return self.options

    def list_in(self, caller: Caller, path: NamespacePath, page: Page, declared: Declared) -> Sequence[str]:
        return page_of(
            [ident.name for ident in self.list_all(caller, declared) if ident.namespace == path], page
        )

    def list_all(self, caller: Caller, declared: Declared) -> Sequence[TableIdent]:
        return [
            table_ident(levels)
            for levels, rows in self.rows.items()
            if rows is not None or declared is Declared.INCLUDE
        ]

    def drop(self, caller: Caller, ident: TableIdent) -> Table:
        table = self.describe(caller, ident).table
        del self.rows[ident.levels]
        return table


class Rows(RowOperations):
    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.queries: list[TableQuery] = []
        self.edits: list[RowMerge | RowUpdate | str] = []
        self.branches: list[str] = []

    def insert(
        self,
        caller: Caller,
        ident: TableIdent,
        rows: pa.RecordBatchReader,
        mode: InsertMode,
        branch: str = MAIN_BRANCH,
    ) -> WriteResult:
        self.branches.append(branch)
        return WriteResult(2, rows.read_all().num_rows)

    def merge(
        self,
        caller: Caller,
        ident: TableIdent,
        rows: pa.RecordBatchReader,
        merge: RowMerge,
        branch: str = MAIN_BRANCH,
    ) -> EditResult:
        self.edits.append(merge)
        self.branches.append(branch)
        return EditResult(2, inserted=rows.read_all().num_rows, updated=1)

    def update(
        self, caller: Caller, ident: TableIdent, update: RowUpdate, branch: str = MAIN_BRANCH
    ) -> EditResult:
        self.edits.append(update)
        self.branches.append(branch)
        return EditResult(2, updated=3)

    def delete(
        self, caller: Caller, ident: TableIdent, predicate: str, branch: str = MAIN_BRANCH
    ) -> EditResult:
        self.edits.append(predicate)
        self.branches.append(branch)
        return EditResult(2, deleted=3)

    def query(self, caller: Caller, ident: TableIdent, query: TableQuery) -> QueryResult:
        self.queries.append(query)
        rows = self.tables.rows[ident.levels]
        assert rows is not None
        return QueryResult(1, rows.schema, iter(rows.to_batches()))

    def explain(self, caller: Caller, ident: TableIdent, query: TableQuery, *, is_verbose: bool) -> str:
        self.queries.append(query)
        return "verbose plan" if is_verbose else "plan"

    def analyze(self, caller: Caller, ident: TableIdent, query: TableQuery) -> str:
        self.queries.append(query)
        return "analysis"

    def count_rows(
        self,
        caller: Caller,
        ident: TableIdent,
        predicate: str | None,
        version: int | None,
        branch: str = MAIN_BRANCH,
    ) -> tuple[int, int]:
        self.branches.append(branch)
        return 42, version or 1


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


# Operations that no test on this stand reaches; they are tested over a socket with everything real.
UNASKED: Any = None


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
        operations = Operations(
            namespaces=self.namespaces,
            tables=self.tables,
            registrations=UNASKED,
            snapshots=UNASKED,
            rows=self.rows,
            versions=self.versions,
            refs=UNASKED,
            batches=UNASKED,
            functions=self.functions,
            schemas=UNASKED,
            indexes=UNASKED,
            transactions=UNASKED,
            columns=self.columns,
            views=self.views,
            jobs=self.jobs,
            secrets=UNASKED,
            stored_queries=UNASKED,
            explain=self.plans,
            provenance=self.provenance,
            lineage=self.lineage,
            view_status=self.view_status,
            environments=self.environments,
            iceberg_tables=UNASKED,
            iceberg_views=UNASKED,
            iceberg_access=UNASKED,
            iceberg_signing=UNASKED,
            scan_planner=UNASKED,
            receipts=UNASKED,
            warehouse_name="tidemill",
            health=self.health,
            tokens=UNASKED,
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


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def some_rows(count: int = 3) -> pa.Table:
    return pa.table({"id": list(range(count)), "text": [f"row {number}" for number in range(count)]}, SCHEMA)
