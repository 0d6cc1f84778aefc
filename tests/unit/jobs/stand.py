"""A catalog in memory whose tables have names, columns and versions, but no rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pyarrow as pa

from tests.contract.samples import a_function, a_table, a_version, a_view
from tidemill.catalog.errors import TableVersionNotFound
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Function
from tidemill.catalog.model.identifiers import Securable, TableIdent
from tidemill.catalog.model.tables import Table, TableKind, TableVersion
from tidemill.errors import PermissionDenied
from tidemill.jobs.model.plans import TableSnapshot
from tidemill.jobs.model.views import MaterializedView, SourceQuery, ViewKind, ViewSource
from tidemill.store.engine import open_store


class Versions:
    """The latest version of every table; 1 unless a test says otherwise."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.latest: dict[UUID, int] = {}

    def find_latest(self, table: Table) -> TableVersion | None:
        return self.get_latest(table)

    def get_latest(self, table: Table) -> TableVersion:
        return a_version(table.table_id, self.latest.get(table.table_id, 1))

    def find(self, table: Table, version: int) -> TableVersion | None:
        return a_version(table.table_id, version) if version <= self.get_latest(table).version else None

    def get(self, table: Table, version: int) -> TableVersion:
        found = self.find(table, version)
        if found is None:
            raise TableVersionNotFound(table.ident, version)
        return found

    def get_branch(self, ident: TableIdent, branch: str) -> Table:
        with self._catalog.store.reading() as tx:
            return tx.tables.get(ident)


class Catalog:
    """Also stands for the judge of permissions and for the tables' data."""

    def __init__(self) -> None:
        self.store = open_store("sqlite://")
        self.versions = Versions(self)
        self.columns: dict[UUID, tuple[str, ...]] = {}
        self.hidden: set[str] = set()

    def table(self, name: str, *columns: str, kind: TableKind = TableKind.TABLE) -> Table:
        table = a_table(name, kind=kind)
        with self.store.transaction() as tx:
            tx.tables.add(table)
        self.columns[table.table_id] = columns
        return table

    def function(self, name: str, **changes: Any) -> Function:
        function = replace(a_function(name), **changes)
        with self.store.transaction() as tx:
            tx.functions.add(function, "ada")
        return function

    def view(self, name: str, *sources: Table, names: Sequence[str] = ("id",), **changes: Any) -> Table:
        """A view whose columns have these names; if nothing else is said, they are those of its source."""
        table = self.table(name, *names, kind=TableKind.VIEW)
        levels = tuple(ViewSource(source.table_id, source.ident.levels) for source in sources)
        values: dict[str, Any] = {
            "sources": levels,
            "kind": ViewKind.QUERY,
            "query": SourceQuery(sources[0].ident.levels, {name: name for name in names}),
            "function_digest": None,
            "inputs": (),
        }
        with self.store.transaction() as tx:
            tx.derived.add_view(a_view(table.table_id, **(values | changes)))
        return table

    def definition(self, table: Table) -> MaterializedView:
        with self.store.reading() as tx:
            view = tx.derived.find_view(table.table_id)
        assert view is not None
        return view

    def drop(self, table: Table) -> None:
        with self.store.transaction() as tx:
            tx.tables.remove(table.table_id)

    def require(self, caller: Caller, permission: Permission, resource: Securable) -> None:
        if str(resource) in self.hidden:
            raise PermissionDenied(caller.principal, permission, str(resource))

    def sees(self, caller: Caller, resource: Securable) -> bool:
        return str(resource) not in self.hidden

    def snapshot(self, table: Table, version: int | None) -> TableSnapshot:
        schema = pa.schema([pa.field(name, pa.int64()) for name in self.columns[table.table_id]])
        return TableSnapshot(1, schema, (), has_stable_row_ids=True)

    def columns_read(
        self, table: Table, query: SourceQuery, inputs: Sequence[str], version: int | None
    ) -> tuple[str, ...]:
        texts = [*(query.columns or {}).values(), query.filter or ""]
        words = {word for text in texts for word in re.findall(r"\w+", text)} | set(inputs)
        return tuple(name for name in self.columns[table.table_id] if words.issuperset(name.split()))
