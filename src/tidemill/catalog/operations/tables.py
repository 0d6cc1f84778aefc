"""What callers can do with tables as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from uuid import uuid4

import pyarrow as pa

from tidemill.catalog.errors import TableAlreadyExists
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.namespaces import CreateMode
from tidemill.catalog.model.tables import MAIN_BRANCH, InsertMode, Page, Table, TableDescription
from tidemill.catalog.operations.versions import VersionOperations
from tidemill.catalog.ports import Authorizer, CatalogStore, CatalogTransaction, TableData, TableFiles


class Declared(Enum):
    """Whether a listing shows tables that have no data yet."""

    INCLUDE = "include"
    EXCLUDE = "exclude"


class TableOperations:
    def __init__(
        self,
        store: CatalogStore,
        authorizer: Authorizer,
        files: TableFiles,
        data: TableData,
        versions: VersionOperations,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self._data = data
        self._versions = versions

    def create(
        self,
        caller: Caller,
        ident: TableIdent,
        rows: pa.RecordBatchReader,
        mode: CreateMode,
        properties: Mapping[str, str],
    ) -> TableDescription:
        self._authorizer.require(caller, Permission.WRITE, ident)
        existing = self._find(ident)
        if existing is not None and self._versions.find_latest(existing) is not None:
            if mode is CreateMode.CREATE:
                raise TableAlreadyExists(ident)
            if mode is CreateMode.OVERWRITE:
                self._data.insert(existing, rows, InsertMode.OVERWRITE)
            return self._description(existing)
        table = existing or self._new_table(ident, properties)

        def add_table(tx: CatalogTransaction, _: int) -> None:
            if tx.tables.find(ident) is None:
                tx.tables.add(table)

        self._data.create(table, rows, add_table)
        return self._description(table)

    def declare(self, caller: Caller, ident: TableIdent, properties: Mapping[str, str]) -> Table:
        self._authorizer.require(caller, Permission.WRITE, ident)
        table = self._new_table(ident, properties)
        with self._store.transaction() as tx:
            tx.tables.add(table)
        return table

    def describe(self, caller: Caller, ident: TableIdent, version: int | None = None) -> TableDescription:
        self._authorizer.require(caller, Permission.READ, ident)
        if version is None:
            with self._store.transaction() as tx:
                table = tx.tables.get(ident)
            return self._description(table)
        found = self._versions.describe(caller, ident, MAIN_BRANCH, version)
        with self._store.transaction() as tx:
            table = tx.tables.get(ident)
        return TableDescription(table, found, self._data.schema(table, version))

    def list_in(self, caller: Caller, path: NamespacePath, page: Page, declared: Declared) -> Sequence[str]:
        self._authorizer.require(caller, Permission.READ, path)
        with self._store.transaction() as tx:
            if not path.is_root:
                tx.namespaces.get(path)
            if declared is Declared.INCLUDE:
                return [table.ident.name for table in tx.tables.list_in(path, page)]
            filled = [
                table.ident.name
                for table in tx.tables.list_in(path, Page(after=page.after))
                if tx.versions.find_latest(table.table_id, MAIN_BRANCH) is not None
            ]
        return filled if page.limit is None else filled[: page.limit]

    def drop(self, caller: Caller, ident: TableIdent) -> Table:
        self._authorizer.require(caller, Permission.MANAGE, ident)
        with self._store.transaction() as tx:
            table = tx.tables.get(ident)
            tx.tables.remove(table.table_id)
        self._files.remove_table(table.location)
        return table

    def _find(self, ident: TableIdent) -> Table | None:
        with self._store.transaction() as tx:
            if not ident.namespace.is_root:
                tx.namespaces.get(ident.namespace)
            return tx.tables.find(ident)

    def _new_table(self, ident: TableIdent, properties: Mapping[str, str]) -> Table:
        table_id = uuid4()
        return Table(table_id, ident, self._files.location_of(table_id), properties=dict(properties))

    def _description(self, table: Table) -> TableDescription:
        latest = self._versions.find_latest(table)
        schema = None if latest is None else self._data.schema(table, latest.version)
        return TableDescription(table, latest, schema)
