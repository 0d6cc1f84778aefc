"""What a drop of columns would break, and what becomes of it.

Columns are read by computed columns of the same table, by views and by stored queries. A drop that would
break one of them is refused; `CASCADE` drops the dependants too, `FORCE` leaves them.

To find out what a definition reads, tables are opened, which cannot be done in a transaction. So a drop is
planned first. The transaction of its commit locks the table and raises `DependantsChanged` if there are
others by then, and the drop is planned again. Declarations and creations of views do the reverse: see
`tidemill.jobs.service.unchanged_columns`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

import pyarrow as pa

from tidemill.catalog.errors import ConcurrentModification, TableNotFound
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Function
from tidemill.catalog.model.identifiers import DependantPolicy, TableIdent
from tidemill.catalog.model.sql import paths_in
from tidemill.catalog.model.tables import StoredQuery, Table, TableKind
from tidemill.catalog.operations.dependants import refusal
from tidemill.catalog.operations.visibility import can
from tidemill.catalog.ports import Authorizer, TableFiles
from tidemill.jobs.model.columns import ComputedColumn
from tidemill.jobs.model.views import MaterializedView
from tidemill.jobs.planning.bindings import ColumnBindings
from tidemill.jobs.ports import JobStore, JobTransaction, TransactionEffect
from tidemill.jobs.table_ports import SourceTables
from tidemill.jobs.views.kinds import behavior_of

FieldPath: TypeAlias = tuple[str, ...]
"""The names from a column to a field inside it; one name is the column itself."""


class DependantsChanged(ConcurrentModification):
    """Something that reads the table was declared or dropped since the drop was planned."""

    def __init__(self, table: Table) -> None:
        super().__init__(f"What depends on {table.ident} changed in the meantime; try again")


@dataclass(frozen=True)
class Dependants:
    """What depends on columns of a table, and what the search for it has seen."""

    columns: tuple[ComputedColumn, ...] = ()
    views: tuple[Table, ...] = ()
    seen_columns: frozenset[object] = frozenset()
    seen_readers: frozenset[UUID] = frozenset()
    direct: frozenset[UUID] = frozenset()


class PlannedDrop:
    """One attempt to drop columns of a table; `columns` go with those that were named."""

    def __init__(
        self,
        store: JobStore,
        files: TableFiles,
        table: Table,
        columns: tuple[str, ...],
        dependants: Dependants,
    ) -> None:
        self._store = store
        self._files = files
        self._table = table
        self._dependants = dependants
        self._removed: tuple[Table, ...] = ()
        self.columns = columns

    def on_commit(self, forget: TransactionEffect) -> TransactionEffect:
        """The effect that forgets the columns, after a look whether the plan still holds."""

        def drop(tx: JobTransaction, version: int) -> None:
            self._check(tx)
            for view in self._dependants.views:
                tx.tables.remove(view.table_id)
            self._removed = self._dependants.views
            forget(tx, version)

        return drop

    def remove_files(self) -> None:
        """Those of the views that the commit has removed; it may have failed."""
        with self._store.reading() as tx:
            gone = [view for view in self._removed if tx.tables.find_by_id(view.table_id) is None]
        for view in gone:
            self._files.remove_table(view.location)

    def _check(self, tx: JobTransaction) -> None:
        table, planned = self._table, self._dependants
        tx.tables.lock_all({table.ident}, removed={view.ident for view in planned.views})
        found = tx.tables.find_by_id(table.table_id)
        if found is None:
            raise TableNotFound(table.ident)
        columns = {_identity(column) for column in tx.derived.list_columns(table.table_id)}
        readers = tx.tables.list_readers({table.table_id})
        direct = [reader for reader in readers if reader.table_id in planned.direct]
        if (
            found.ident != table.ident
            or columns != planned.seen_columns
            or not planned.seen_readers.issuperset(reader.table_id for reader in readers)
            or _objects(_with_readers(tx, direct)) != _objects(planned.views)
        ):
            raise DependantsChanged(table)


class ColumnDrops:
    def __init__(
        self, store: JobStore, authorizer: Authorizer, files: TableFiles, sources: SourceTables
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self._sources = sources
        self._bindings = ColumnBindings(store, sources)

    def plan(
        self, caller: Caller, table: Table, paths: Sequence[FieldPath], policy: DependantPolicy
    ) -> PlannedDrop:
        """Raises HasDependants, and PermissionDenied if the caller may not drop one of the dependants."""
        found = self._dependants(table, paths)
        self._check_allowed(caller, table, paths, found, policy)
        named = tuple(name for column in found.columns for name in column.names)
        return PlannedDrop(self._store, self._files, table, named, found)

    def _dependants(self, table: Table, paths: Sequence[FieldPath]) -> Dependants:
        computed = self._bindings.columns_of(table)
        with self._store.reading() as tx:
            readers = tx.tables.list_readers({table.table_id})
            queries = [tx.stored_queries.get(reader) for reader in readers if reader.kind is TableKind.QUERY]
            views = tx.derived.list_views_of(table.table_id)
        names = self._sources.snapshot(table, None).schema.names if computed or readers else []
        columns, dropped = _reading_columns(computed, paths, names)
        definitions = _Definitions(self._store, self._sources)
        direct = {query.table.table_id for query in queries if _reads(_query_paths(query, names), dropped)}
        direct |= {view.view_id for view in views if definitions.reads(view, table.table_id, dropped)}
        with self._store.reading() as tx:
            found = _with_readers(tx, [reader for reader in readers if reader.table_id in direct])
        return Dependants(
            columns=tuple(columns),
            views=tuple(found),
            seen_columns=frozenset(_identity(column) for column, _ in computed),
            seen_readers=frozenset(reader.table_id for reader in readers),
            direct=frozenset(direct),
        )

    def _check_allowed(
        self,
        caller: Caller,
        table: Table,
        paths: Sequence[FieldPath],
        found: Dependants,
        policy: DependantPolicy,
    ) -> None:
        if not found.columns and not found.views:
            return
        visible = [view.ident for view in found.views if self._can_read(caller, view.ident)]
        hidden = len(found.views) - len(visible)
        if policy is DependantPolicy.RESTRICT or hidden:
            made = [f"column '{column.name}'" for column in found.columns]
            if not self._can_read(caller, table.ident):
                made, hidden = [], hidden + len(made)
            names = [*made, *map(str, visible)]
            raise refusal(_title(table, paths), names, hidden, is_plural=len(paths) > 1)
        for ident in visible:
            self._authorizer.require(caller, Permission.MANAGE, ident)

    def _can_read(self, caller: Caller, ident: TableIdent) -> bool:
        return can(self._authorizer, caller, Permission.READ, ident)


def _title(table: Table, paths: Sequence[FieldPath]) -> str:
    names = ", ".join(f"'{'.'.join(path)}'" for path in paths)
    return f"{'Column' if len(paths) == 1 else 'Columns'} {names} of {table.ident}"


def _identity(column: ComputedColumn) -> object:
    return column.column_id, column.function_digest, column.names, column.inputs


def _objects(tables: Iterable[Table]) -> set[tuple[UUID, TableIdent]]:
    return {(table.table_id, table.ident) for table in tables}


def _with_readers(tx: JobTransaction, views: Sequence[Table]) -> list[Table]:
    """These views, and all that is made from them."""
    found, known = list(views), {view.table_id for view in views}
    while new := tx.tables.list_readers(known) if known else ():
        found += new
        known |= {view.table_id for view in new}
    return found


def _reading_columns(
    computed: Sequence[tuple[ComputedColumn, Function]], paths: Sequence[FieldPath], names: Sequence[str]
) -> tuple[list[ComputedColumn], list[FieldPath]]:
    """The computed columns that read the dropped ones or each other, and all that is dropped with them."""
    dropped, found = list(paths), list[ComputedColumn]()
    named = {path[0] for path in paths if len(path) == 1}
    left = [(column, function) for column, function in computed if named.isdisjoint(column.names)]
    while new := [column for column, function in left if _reads(_inputs(column, function, names), dropped)]:
        found += new
        dropped += [(name,) for column in new for name in column.names]
        left = [(column, function) for column, function in left if column not in found]
    return found, dropped


def _inputs(column: ComputedColumn, function: Function, names: Sequence[str]) -> list[FieldPath]:
    if function.is_expression:
        return _expression_paths([function.name], names)
    return _input_paths(column.inputs, names)


def _input_paths(inputs: Iterable[str], names: Sequence[str]) -> list[FieldPath]:
    return [
        (name,) if name in names else tuple(part.strip("`") for part in name.split(".")) for name in inputs
    ]


def _expression_paths(expressions: Iterable[str], names: Sequence[str]) -> list[FieldPath]:
    """What expressions read. One that cannot be split into words is taken to read everything."""
    paths: list[FieldPath] = []
    for expression in expressions:
        for first, *rest in paths_in(expression) or [(name,) for name in names]:
            # Lance finds columns in any case, and prefers the one that is written the same.
            same = [first] if first in names else [name for name in names if name.lower() == first.lower()]
            paths += [(name, *rest) for name in same]
    return paths


def _reads(read: Iterable[FieldPath], dropped: Collection[FieldPath]) -> bool:
    """Whether one of the fields is dropped, or something inside it, or what it is inside of."""
    return any(_overlap(path, other) for path in read for other in dropped)


def _overlap(path: FieldPath, other: FieldPath) -> bool:
    inside = zip(path[1:], other[1:], strict=False)
    return path[0] == other[0] and all(one.lower() == two.lower() for one, two in inside)


def _query_paths(query: StoredQuery, names: Sequence[str]) -> list[FieldPath]:
    filters = [] if query.filter is None else [query.filter]
    return _expression_paths([*query.columns.values(), *filters], names)


class _Definitions:
    """Reads the definitions of views; what was looked up is kept until the drop is planned."""

    def __init__(self, store: JobStore, sources: SourceTables) -> None:
        self._store = store
        self._sources = sources
        self._schemas: dict[UUID, pa.Schema | None] = {}

    def reads(self, view: MaterializedView, table_id: UUID, dropped: Sequence[FieldPath]) -> bool:
        links = behavior_of(view).links(view, self) if view.sources else []
        # A view of everything does not read columns that were added later.
        known = {name for source in view.sources if source.table_id == table_id for name in source.columns}
        read = [
            (link.origin.column,)
            for link in links
            if link.origin.table_id == table_id and link.origin.column is not None
        ]
        read = [path for path in read if not known or path[0] in known]
        if not _reads(read, dropped):
            return False
        return view.statement is not None or _reads(self._fields(view), dropped)

    def _fields(self, view: MaterializedView) -> list[FieldPath]:
        """What a view over one source reads inside its columns, which links do not tell."""
        schema = self._schema(view.sources[0].table_id)
        names = [] if schema is None else schema.names
        query = view.query
        filters = [] if query.filter is None else [query.filter]
        inputs = [*view.inputs_read, *([] if view.partition_index is None else [view.partition_index])]
        expressions = [*(query.columns or {}).values(), *filters]
        return [*_expression_paths(expressions, names), *_input_paths(inputs, names)]

    def functions(self, view: MaterializedView) -> Sequence[Function]:
        with self._store.reading() as tx:
            return [tx.functions.get(key) for key in view.function_keys]

    def columns_read(self, view: MaterializedView, expression: str) -> Sequence[str] | None:
        schema = self._schema(view.sources[0].table_id)
        if schema is None:
            return None
        return list(dict.fromkeys(path[0] for path in _expression_paths([expression], schema.names)))

    def source_schemas(self, view: MaterializedView) -> Sequence[pa.Schema] | None:
        found = [self._schema(source.table_id) for source in view.sources]
        known = [schema for schema in found if schema is not None]
        return known if len(known) == len(found) else None

    def _schema(self, table_id: UUID) -> pa.Schema | None:
        if table_id not in self._schemas:
            with self._store.reading() as tx:
                table = tx.tables.find_by_id(table_id)
            self._schemas[table_id] = None if table is None else self._sources.snapshot(table, None).schema
        return self._schemas[table_id]
