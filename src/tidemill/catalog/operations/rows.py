"""What callers can do with the rows of a table."""

from __future__ import annotations

import pyarrow as pa

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, InsertMode, Table, TableQuery, WriteResult
from tidemill.catalog.operations.versions import VersionOperations
from tidemill.catalog.ports import Authorizer, CatalogStore, CatalogTransaction, TableData


class RowOperations:
    def __init__(
        self, store: CatalogStore, authorizer: Authorizer, data: TableData, versions: VersionOperations
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._data = data
        self._versions = versions

    def insert(
        self, caller: Caller, ident: TableIdent, rows: pa.RecordBatchReader, mode: InsertMode
    ) -> WriteResult:
        self._authorizer.require(caller, Permission.WRITE, ident)
        table = self._get(ident)
        if self._versions.find_latest(table) is None:
            return self._data.create(table, rows, _nothing_else)
        return self._data.insert(table, rows, mode)

    def query(self, caller: Caller, ident: TableIdent, query: TableQuery) -> pa.Table:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self._get_readable(caller, ident, query.version)
        return self._data.query(table, query)

    def count_rows(
        self, caller: Caller, ident: TableIdent, predicate: str | None, version: int | None
    ) -> int:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self._get_readable(caller, ident, version)
        return self._data.count_rows(table, predicate, version)

    def _get(self, ident: TableIdent) -> Table:
        with self._store.transaction() as tx:
            return tx.tables.get(ident)

    def _get_readable(self, caller: Caller, ident: TableIdent, version: int | None) -> Table:
        self._versions.describe(caller, ident, MAIN_BRANCH, version)
        return self._get(ident)


def _nothing_else(_: CatalogTransaction, __: int) -> None:
    return None
