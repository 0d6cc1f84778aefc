"""Operations on the rows of a table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import pyarrow as pa

from tidemill.catalog.errors import (
    ConcurrentModification,
    TableAlreadyExists,
    TableColumnNotFound,
    TableIsQuery,
    TableVersionNotFound,
)
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, StoredQuery, Table, WriteResult
from tidemill.catalog.ports import (
    Authorizer,
    CatalogTransaction,
)
from tidemill.jobs.ports import JobStore
from tidemill.lance.datasets import LanceTableData
from tidemill.lance.edits import LanceTableEdits
from tidemill.lance.evaluation.evaluator import Evaluator
from tidemill.lance.model.edits import EditResult, RowMerge, RowUpdate
from tidemill.lance.model.queries import QueryResult, TableQuery
from tidemill.lance.model.tables import InsertMode
from tidemill.lance.queries import InternalColumns, LanceTableQueries
from tidemill.lance.stored_queries import query_over_source, stored_query_of
from tidemill.lance.versions.commit import VersionOperations

READ_ATTEMPTS: Final = 5
Result = TypeVar("Result")


class RowOperations:
    """Every operation takes a branch and raises BranchNotFound if it does not exist."""

    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        data: LanceTableData,
        versions: VersionOperations,
        evaluator: Evaluator,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._data = data
        self._queries = LanceTableQueries(evaluator, InternalColumns(store))
        self._edits = LanceTableEdits(data, evaluator)
        self._versions = versions

    def insert(
        self,
        caller: Caller,
        ident: TableIdent,
        rows: pa.RecordBatchReader,
        mode: InsertMode,
        branch: str = MAIN_BRANCH,
    ) -> WriteResult:
        self._authorizer.require(caller, Permission.WRITE, ident)
        table = self._versions.get_branch(ident, branch)
        table_rows = rows.read_all()
        created = self._create_if_declared(table, table_rows)
        return created or self._data.insert(table, table_rows.to_reader(), mode)

    def merge(
        self,
        caller: Caller,
        ident: TableIdent,
        rows: pa.RecordBatchReader,
        merge: RowMerge,
        branch: str = MAIN_BRANCH,
    ) -> EditResult:
        self._authorizer.require(caller, Permission.WRITE, ident)
        table = self._versions.get_branch(ident, branch)
        table_rows = rows.read_all()
        if self._versions.find_latest(table) is None:
            for name in merge.on:
                if name.strip("`") not in table_rows.schema.names:
                    raise TableColumnNotFound(ident, name, tuple(table_rows.schema.names))
        created = self._create_if_declared(table, table_rows)
        if created is not None:
            return EditResult(created.version, inserted=created.rows)
        return self._edits.merge(caller.principal, table, table_rows, merge)

    def update(
        self, caller: Caller, ident: TableIdent, update: RowUpdate, branch: str = MAIN_BRANCH
    ) -> EditResult:
        self._authorizer.require(caller, Permission.WRITE, ident)
        table = self._versions.get_branch(ident, branch)
        self._versions.get_latest(table)

        def set_properties(tx: CatalogTransaction, _: int) -> None:
            if update.properties:
                current = tx.tables.get(ident).properties
                tx.tables.set_properties(table.table_id, {**current, **update.properties})

        result = self._edits.update(caller.principal, table, update, set_properties)
        with self._store.transaction() as tx:
            if not result.updated:
                # If no row changed there was no commit, and so no transaction that set the properties.
                set_properties(tx, result.version)
            properties = tx.tables.get(ident).properties
        return EditResult(result.version, updated=result.updated, properties=properties)

    def delete(
        self, caller: Caller, ident: TableIdent, predicate: str, branch: str = MAIN_BRANCH
    ) -> EditResult:
        self._authorizer.require(caller, Permission.WRITE, ident)
        table = self._versions.get_branch(ident, branch)
        self._versions.get_latest(table)
        return self._edits.delete(caller.principal, table, predicate)

    def query(self, caller: Caller, ident: TableIdent, query: TableQuery) -> QueryResult:
        def run(table: Table, version: int) -> QueryResult:
            return self._queries.query(caller.principal, table, query, version)

        try:
            return self._at_version(caller, ident, query.branch, query.version, run)
        except TableIsQuery as view:
            stored = self._stored_query(caller, view.table)
            return self.query(
                caller, stored.source, query_over_source(stored, self._schema(stored.source), query)
            )

    def query_in_memory(
        self, caller: Caller, ident: TableIdent, rows: pa.Table, query: TableQuery
    ) -> QueryResult:
        """For a table whose rows are generated when it is queried."""
        self._authorizer.require(caller, Permission.READ, ident)
        return self._queries.query_in_memory(caller.principal, ident, rows, query)

    def count_rows(
        self,
        caller: Caller,
        ident: TableIdent,
        predicate: str | None,
        version: int | None,
        branch: str = MAIN_BRANCH,
    ) -> tuple[int, int]:
        """Returns the number of rows and the version they were counted at."""

        def run(table: Table, number: int) -> tuple[int, int]:
            return self._queries.count_rows(caller.principal, table, predicate, number), number

        try:
            return self._at_version(caller, ident, branch, version, run)
        except TableIsQuery as view:
            stored = self._stored_query(caller, view.table)
            rewritten = query_over_source(
                stored, self._schema(stored.source), TableQuery(filter=predicate, version=version)
            )
            rows, number = self.count_rows(caller, stored.source, rewritten.filter, None)
            return rows if stored.limit is None else min(rows, stored.limit), number

    def explain(self, caller: Caller, ident: TableIdent, query: TableQuery, *, is_verbose: bool) -> str:
        def run(table: Table, version: int) -> str:
            return self._queries.explain(caller.principal, table, query, version, is_verbose=is_verbose)

        return self._at_version(caller, ident, query.branch, query.version, run)

    def analyze(self, caller: Caller, ident: TableIdent, query: TableQuery) -> str:
        def run(table: Table, version: int) -> str:
            return self._queries.analyze(caller.principal, table, query, version)

        return self._at_version(caller, ident, query.branch, query.version, run)

    def _stored_query(self, caller: Caller, table: Table) -> StoredQuery:
        """For those who may read its source: what is refused later tells of columns that the source has."""
        stored = stored_query_of(self._store, table)
        self._authorizer.require(caller, Permission.READ, stored.source)
        return stored

    def _schema(self, ident: TableIdent) -> pa.Schema:
        return self._data.schema(self._versions.get_branch(ident, MAIN_BRANCH), None)

    def _at_version(
        self,
        caller: Caller,
        ident: TableIdent,
        branch: str,
        version: int | None,
        run: Callable[[Table, int], Result],
    ) -> Result:
        """A clean-up may remove the latest version before it is opened, once another has followed."""
        for _ in range(READ_ATTEMPTS - 1 if version is None else 0):
            with suppress(TableVersionNotFound):
                return run(*self._resolve_version(caller, ident, branch, version))
        return run(*self._resolve_version(caller, ident, branch, version))

    def _resolve_version(
        self, caller: Caller, ident: TableIdent, branch: str, version: int | None
    ) -> tuple[Table, int]:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self._versions.get_branch(ident, branch)
        latest = self._versions.get_latest(table)
        return table, latest.version if version is None else self._versions.get(table, version).version

    def _create_if_declared(self, table: Table, rows: pa.Table) -> WriteResult | None:
        """Creates a declared table from its first rows; None if it has data, even if only just now."""
        if self._versions.find_latest(table) is not None:
            return None
        try:
            return self._data.create(table, rows.to_reader(), _no_effect)
        except (ConcurrentModification, TableAlreadyExists):
            if self._versions.find_latest(table) is None:
                raise
            return None


def _no_effect(_: CatalogTransaction, __: int) -> None:
    return None
