"""Materialized views: declared over their sources, filled by refreshes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import pyarrow as pa

from tidemill.catalog.errors import TableAlreadyExists, TableNotFound
from tidemill.catalog.model.callers import Caller, Permission, is_deployment
from tidemill.catalog.model.identifiers import (
    ROOT_NAMESPACE_ID,
    NamespacePath,
    TableIdent,
    table_ident,
)
from tidemill.catalog.model.tables import Page, Table, TableKind
from tidemill.catalog.operations.visibility import require_visible
from tidemill.catalog.ports import Authorizer, TableFiles
from tidemill.errors import InvalidInput
from tidemill.jobs.errors import ViewNotFound
from tidemill.jobs.model.options import RefreshRequest
from tidemill.jobs.model.views import MaterializedView, SourceQuery, ViewSource, frozen
from tidemill.jobs.ports import JobStore, JobTransaction
from tidemill.jobs.service.source_visibility import sees_sources
from tidemill.jobs.service.submissions import JobOperations
from tidemill.jobs.service.unchanged_columns import ColumnsChanged, check_unchanged, retry_changed
from tidemill.jobs.table_ports import SourceTables, TableData
from tidemill.jobs.views.definitions import (
    FunctionColumn,
    ReadSource,
    SettledView,
    ViewDefinition,
    definition_digest,
)
from tidemill.jobs.views.kinds import behavior_of

__all__ = ["CreatedView", "DescribedView", "FunctionColumn", "ViewDefinition", "ViewOperations"]


@dataclass(frozen=True)
class CreatedView:
    version: int
    job_id: str | None


@dataclass(frozen=True)
class DescribedView:
    """A view with its table, the names of its functions and its sources; None for those that were dropped.

    `is_hidden` if the caller may not read all sources, and therefore not learn how the view is made.
    """

    table: Table
    view: MaterializedView
    sources: tuple[Table | None, ...]
    functions: tuple[str, ...] = ()
    is_hidden: bool = False

    @property
    def source(self) -> Table | None:
        return self.sources[0] if self.sources else None


class ViewOperations:
    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        files: TableFiles,
        data: TableData,
        sources: SourceTables,
        jobs: JobOperations,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self._data = data
        self._sources = sources
        self._jobs = jobs

    def create(self, caller: Caller, ident: TableIdent, definition: ViewDefinition) -> CreatedView:
        self._authorizer.require(caller, Permission.WRITE, ident)
        if definition.functions:
            self._authorizer.require(caller, Permission.FUNCTION, ident)
        if definition.is_populated:
            self._authorizer.require(caller, Permission.COMPUTE, ident)
        behavior_of(definition).check(definition)
        version = retry_changed(lambda: self._create(caller, ident, definition))
        if not definition.is_populated:
            return CreatedView(version, None)
        job = self._jobs.submit_refresh(caller, ident, RefreshRequest(), None)
        return CreatedView(version, job.job_id)

    def _create(self, caller: Caller, ident: TableIdent, definition: ViewDefinition) -> int:
        sources, versions = self._read(caller, ident, definition)
        settled = self._settled(ident, definition, sources)
        view_id = uuid4()
        table = Table(view_id, ident, self._files.location_of(view_id), TableKind.VIEW)
        view = replace(_view(view_id, definition, settled, sources), owner=caller)

        def remember(tx: JobTransaction, _: int) -> None:
            _lock_sources(tx, sources)
            for source, version in zip(sources, versions, strict=True):
                check_unchanged(tx, self._data, source.table, version, source.schema)
            tx.tables.add(table)
            namespace_id = ROOT_NAMESPACE_ID
            # Whoever declares the same functions at this moment adds them in the same order.
            for function in sorted(definition.functions, key=lambda f: (f.name, f.digest)):
                key = tx.functions.add(function, caller.principal, ident.namespace)
                namespace_id = key.namespace_id
            tx.derived.add_view(replace(view, function_namespace_id=namespace_id))

        empty = pa.RecordBatchReader.from_batches(settled.output, [])
        try:
            return self._data.create(table, empty, remember).version
        except ColumnsChanged:
            self._files.remove_table(table.location)
            raise

    def describe(self, caller: Caller, ident: TableIdent) -> DescribedView:
        """Raises ViewNotFound when it is a plain table."""
        self._authorizer.require(caller, Permission.READ, ident)
        with self._store.transaction() as tx:
            table = tx.tables.get(ident)
            view = tx.derived.find_view(table.table_id)
            if view is None:
                raise ViewNotFound(ident)
            return self._described(tx, caller, table, view)

    def set_owner(self, caller: Caller, ident: TableIdent, owner: str) -> None:
        """Makes the caller the owner, or anybody if the caller administrates the whole catalog.

        Otherwise an administrator of the view's namespace could read with the rights of others.
        """
        self._authorizer.require(caller, Permission.ADMIN, ident)
        if owner != caller.principal:
            self._authorizer.require(caller, Permission.ADMIN, NamespacePath())
        new_owner = caller if owner == caller.principal else Caller(owner)
        if is_deployment(new_owner) and not is_deployment(caller):
            raise InvalidInput("owner", f"{owner!r} stands for the server itself; name a client or a user")
        with self._store.transaction() as tx:
            table = tx.tables.get(ident)
            if tx.derived.find_view(table.table_id) is None:
                raise ViewNotFound(ident)
            tx.derived.set_owner(table.table_id, new_owner)

    def list_in(self, caller: Caller, namespace: NamespacePath) -> Sequence[DescribedView]:
        """Those directly in the namespace that the caller sees, sorted by name."""
        require_visible(self._authorizer, caller, namespace)
        with self._store.transaction() as tx:
            views = {view.view_id: view for view in tx.derived.list_views()}
            tables = [table for table in tx.tables.list_in(namespace, Page()) if table.table_id in views]
            seen = [table for table in tables if self._authorizer.sees(caller, table.ident)]
            return [self._described(tx, caller, table, views[table.table_id]) for table in seen]

    def _described(
        self, tx: JobTransaction, caller: Caller, table: Table, view: MaterializedView
    ) -> DescribedView:
        return DescribedView(
            table,
            view,
            tuple(tx.tables.find_by_id(source.table_id) for source in view.sources),
            tuple(tx.functions.get(key).name for key in view.function_keys),
            is_hidden=not sees_sources(tx, self._authorizer, caller, view),
        )

    def project(self, caller: Caller, query: SourceQuery, field: str) -> tuple[pa.Schema, int]:
        """The columns that a query yields, and the version of the source that it was checked against.

        `field` is what the caller calls the query. Raises InvalidInput.
        """
        ident = table_ident(query.source, field)
        self._authorizer.require(caller, Permission.READ, ident)
        with self._store.transaction() as tx:
            source = tx.tables.get(ident)
            view = tx.derived.find_view(source.table_id)
        internal = frozenset() if view is None else view.internal_columns
        snapshot = self._sources.snapshot(source, None)
        shown = [column for column in snapshot.schema if column.name not in internal]
        return self._sources.project(source, frozen(query, pa.schema(shown)), field), snapshot.version

    def _read(
        self, caller: Caller, ident: TableIdent, definition: ViewDefinition
    ) -> tuple[list[ReadSource], list[int]]:
        """The tables the view is made from with their versions, after a look whether it may be made."""
        idents = _source_idents(definition)
        for source in idents:
            self._authorizer.require(caller, Permission.READ, source)
        with self._store.transaction() as tx:
            _check_name(tx, ident)
            if ident in idents:
                raise _cyclic(definition, f"{ident} would be made from itself")
            tables = [tx.tables.get(source) for source in idents]
            _check_cycles(tx, ident, tables, definition)
        for table in tables:
            if table.kind is TableKind.QUERY:
                raise InvalidInput(
                    definition.query_field,
                    f"{table.ident} is a view that is run on every read; make this one from what it reads",
                )
        snapshots = [self._sources.snapshot(table, None) for table in tables]
        sources = [
            ReadSource(table, snapshot.schema) for table, snapshot in zip(tables, snapshots, strict=True)
        ]
        return sources, [snapshot.version for snapshot in snapshots]

    def _settled(
        self, ident: TableIdent, definition: ViewDefinition, sources: Sequence[ReadSource]
    ) -> SettledView:
        if definition.is_opaque:
            assert definition.output is not None
            return SettledView(definition.query, definition.output, definition.inputs)
        return behavior_of(definition).settle(ident, definition, sources, self._sources)


def _source_idents(definition: ViewDefinition) -> list[TableIdent]:
    """Each source once, in the order in which they are named."""
    if definition.is_opaque:
        return []
    named = behavior_of(definition).named_sources(definition)
    return [table_ident(levels, definition.query_field) for levels in dict.fromkeys(named)]


def _check_name(tx: JobTransaction, ident: TableIdent) -> None:
    if not ident.namespace.is_root:
        tx.namespaces.get(ident.namespace)
    if tx.tables.find(ident) is not None:
        raise TableAlreadyExists(ident)


def _check_cycles(
    tx: JobTransaction, ident: TableIdent, sources: Sequence[Table], definition: ViewDefinition
) -> None:
    """A view keeps the names of sources that were dropped: what it is made from must not be made from it."""
    waiting, seen = list(sources), {source.table_id for source in sources}
    while waiting:
        table = waiting.pop()
        view = tx.derived.find_view(table.table_id)
        for source in () if view is None else view.sources:
            found = tx.tables.find_by_id(source.table_id)
            if found is None:
                if source.levels == ident.levels:
                    raise _cyclic(definition, f"{table.ident} is made from {ident}")
            elif found.table_id not in seen:
                seen.add(found.table_id)
                waiting.append(found)


def _cyclic(definition: ViewDefinition, reason: str) -> InvalidInput:
    return InvalidInput(definition.query_field, f"is a cyclic definition: {reason}")


def _lock_sources(tx: JobTransaction, sources: Sequence[ReadSource]) -> None:
    """A source that is being dropped waits for the view and finds it, or is gone: raises TableNotFound."""
    tx.tables.lock_all({source.table.ident for source in sources})
    for source in sources:
        if tx.tables.find_by_id(source.table.table_id) is None:
            raise TableNotFound(source.table.ident)


def _view(
    view_id: UUID, definition: ViewDefinition, settled: SettledView, sources: Sequence[ReadSource]
) -> MaterializedView:
    known = settled.source_columns or ((),) * len(sources)
    return MaterializedView(
        view_id=view_id,
        sources=tuple(
            ViewSource(source.table.table_id, source.ident.levels, columns)
            for source, columns in zip(sources, known, strict=True)
        ),
        kind=definition.kind,
        query=settled.query,
        raw_query=definition.raw_query,
        digest=definition_digest(definition, settled),
        function_digest=None if definition.function is None else definition.function.digest,
        inputs=settled.inputs,
        has_auto_refresh=definition.has_auto_refresh,
        output=settled.output,
        columns=settled.columns,
        partition_by=definition.partition_by,
        partition_index=definition.partition_index,
        statement=definition.statement,
        policy=definition.policy,
        on_error=definition.on_error,
        environment=definition.environment,
    )
