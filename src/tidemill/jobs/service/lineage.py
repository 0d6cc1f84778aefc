"""What tables, views and columns are made from and what depends on them, as far as the caller may see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

import pyarrow as pa

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Function
from tidemill.catalog.model.identifiers import TableIdent, table_ident
from tidemill.catalog.model.tables import MAIN_BRANCH, Table, TableKind
from tidemill.catalog.ports import Authorizer
from tidemill.errors import PermissionDenied
from tidemill.jobs.model.coverage import top_level
from tidemill.jobs.model.lineage import (
    LineageEntry,
    Link,
    Node,
    ObjectKind,
    ObjectLineage,
    Step,
    Through,
    follow,
)
from tidemill.jobs.model.views import MaterializedView, SourceQuery
from tidemill.jobs.ports import JobStore, JobTransaction
from tidemill.jobs.table_ports import SourceTables, TableVersions
from tidemill.jobs.views.kinds import behavior_of
from tidemill.jobs.views.lineage import name_of, object_links


class Lineage:
    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        versions: TableVersions,
        sources: SourceTables,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._versions = versions
        self._sources = sources

    def of(self, caller: Caller, ident: TableIdent, column: str | None) -> ObjectLineage:
        """Of the table or view, or of one of its columns; raises TableColumnNotFound."""
        self._authorizer.require(caller, Permission.READ, ident)
        table = self._versions.get_branch(ident, MAIN_BRANCH)
        if column is not None:
            self._check_column(table, column)
        start = Node(table.table_id, column)
        walk = _Walk(self._store, self._sources, lambda other: self._can_read(caller, other))
        return ObjectLineage(
            levels=ident.levels,
            kind=walk.kind_of(start),
            column=column,
            upstream=walk.entries(follow(start, walk.upstream, lambda link: link.origin)),
            downstream=walk.entries(
                [
                    step
                    for step in follow(start, walk.downstream, lambda link: link.made)
                    if not walk.is_internal(step.node)
                ]
            ),
        )

    def _check_column(self, table: Table, column: str) -> None:
        known = self._sources.snapshot(table, None).schema.names
        if column not in known:
            raise TableColumnNotFound(table.ident, column, tuple(known))

    def _can_read(self, caller: Caller, ident: TableIdent) -> bool:
        try:
            self._authorizer.require(caller, Permission.READ, ident)
        except PermissionDenied:
            return False
        return True


class _Walk:
    """One caller's way along the links; what was looked up is kept until it is over.

    It never goes on behind something the caller may not read: links tell of definitions. It is the
    `DefinitionReader` of the views it comes to.
    """

    def __init__(
        self, store: JobStore, sources: SourceTables, can_read: Callable[[TableIdent], bool]
    ) -> None:
        self._store = store
        self._sources = sources
        self._can_read = can_read
        self._tables: dict[UUID, Table | None] = {}
        self._remembered: dict[UUID, tuple[str, ...]] = {}
        self._links: dict[UUID, list[Link]] = {}
        self._internal: dict[UUID, frozenset[str]] = {}
        self._visible: dict[UUID, bool] = {}

    def upstream(self, node: Node) -> list[Link]:
        with self._store.reading() as tx:
            view = tx.derived.find_view(node.table_id)
            computed = _computed_links(tx, node.table_id)
        if view is not None and node.column is None:
            return self._shown(self._object_links_of(view), lambda link: link.origin)
        found = [] if view is None else self._links_of(view)
        # The filter decides about every value of a view.
        made = {node, Node(node.table_id)}
        wanted = [link for link in (*computed, *found) if node.column is not None and link.made in made]
        return self._shown(wanted, lambda link: link.origin)

    def downstream(self, node: Node) -> list[Link]:
        with self._store.reading() as tx:
            views = tx.derived.list_views_of(node.table_id)
            computed = _computed_links(tx, node.table_id)
        found = [] if node.column is None else computed
        for view in views:
            found += self._object_links_of(view) if node.column is None else self._links_of(view)
        return self._shown([link for link in found if link.origin == node], lambda link: link.made)

    def kind_of(self, node: Node) -> ObjectKind:
        table = self._table(node.table_id)
        if table is None:
            return ObjectKind.DROPPED
        return ObjectKind.VIEW if table.kind is TableKind.VIEW else ObjectKind.TABLE

    def is_internal(self, node: Node) -> bool:
        """Whether it is a column that a view on the way has for itself, and nobody has asked for."""
        return node.column in self._internal.get(node.table_id, ())

    def entries(self, steps: Sequence[Step]) -> tuple[LineageEntry, ...]:
        """One for each thing and way it is led to, the nearest."""
        nearest: dict[object, LineageEntry] = {}
        for step in steps:
            link, node = step.link, step.node
            entry = LineageEntry(
                self._levels(node.table_id),
                self.kind_of(node),
                node.column,
                link.through,
                link.function,
                step.depth,
            )
            nearest.setdefault((node, link.through, link.function), entry)
        return tuple(nearest.values())

    def _shown(self, links: Iterable[Link], end_of: Callable[[Link], Node]) -> list[Link]:
        return [link for link in links if self._is_visible(end_of(link).table_id)]

    def _is_visible(self, table_id: UUID) -> bool:
        if table_id not in self._visible:
            self._visible[table_id] = self._can_read(table_ident(self._levels(table_id)))
        return self._visible[table_id]

    def _levels(self, table_id: UUID) -> tuple[str, ...]:
        table = self._table(table_id)
        return self._remembered[table_id] if table is None else table.ident.levels

    def _table(self, table_id: UUID) -> Table | None:
        if table_id not in self._tables:
            with self._store.reading() as tx:
                self._tables[table_id] = tx.tables.find_by_id(table_id)
        return self._tables[table_id]

    def functions(self, view: MaterializedView) -> Sequence[Function]:
        with self._store.reading() as tx:
            return [tx.functions.get(key) for key in view.function_keys]

    def columns_read(self, view: MaterializedView, expression: str) -> Sequence[str] | None:
        source = self._table(view.sources[0].table_id)
        if source is None:
            return None
        query = SourceQuery(source.ident.levels, {}, expression)
        return self._sources.columns_read(source, query, (), None)

    def source_schemas(self, view: MaterializedView) -> Sequence[pa.Schema] | None:
        tables = [self._table(source.table_id) for source in view.sources]
        known = [table for table in tables if table is not None]
        if len(known) < len(tables):
            return None
        return [self._sources.snapshot(table, None).schema for table in known]

    def _links_of(self, view: MaterializedView) -> list[Link]:
        if view.view_id not in self._links:
            self._internal[view.view_id] = view.internal_columns
            self._remembered |= {source.table_id: source.levels for source in view.sources}
            self._links[view.view_id] = behavior_of(view).links(view, self) if view.sources else []
        return self._links[view.view_id]

    def _object_links_of(self, view: MaterializedView) -> list[Link]:
        return object_links(view, self._links_of(view), behavior_of(view).through)


def _computed_links(tx: JobTransaction, table_id: UUID) -> list[Link]:
    """Of the columns of a table that functions fill from others of it."""
    links: list[Link] = []
    for column in tx.derived.list_columns(table_id):
        function = tx.functions.get(column.function_key)
        through = Through.EXPRESSION if function.is_expression else Through.FUNCTION
        links += [
            Link(
                Node(table_id, made),
                Node(table_id, top_level(name)),
                through,
                None if function.is_expression else name_of(function),
            )
            for made in column.names
            for name in column.inputs
        ]
    return list(dict.fromkeys(links))
