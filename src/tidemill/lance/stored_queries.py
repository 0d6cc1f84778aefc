"""Operations on stored queries, and the translation of reads into queries on their sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tidemill.catalog.errors import StoredQueryNotFound
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.sql import quoted_name, with_names_replaced
from tidemill.catalog.model.tables import Page, StoredQuery, Table, TableKind
from tidemill.catalog.operations.visibility import require_visible
from tidemill.catalog.ports import Authorizer, CatalogStore, TableFiles
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.ports import JobStore
from tidemill.jobs.service.unchanged_columns import check_unchanged
from tidemill.jobs.table_ports import TableData
from tidemill.lance.model.queries import TableQuery


class StoredQueryOperations:
    def __init__(self, store: JobStore, authorizer: Authorizer, files: TableFiles, data: TableData) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self._data = data

    def create(self, caller: Caller, query: StoredQuery, version: int) -> StoredQuery:
        """`version` is that of the source which the query was checked against.

        Raises TableAlreadyExists, NamespaceNotFound: stored queries share their names with tables. Raises
        ColumnsChanged if the source has other columns by now.
        """
        self._authorizer.require(caller, Permission.WRITE, query.table.ident)
        self._authorizer.require(caller, Permission.READ, query.source)
        # It has no data, but a location of its own, like everything that has a name.
        table = replace(query.table, location=self._files.location_of(query.table.table_id))
        stored = replace(query, table=table)
        with self._store.reading() as tx:
            source = tx.tables.get(stored.source)
        schema = self._data.schema(source, version)
        with self._store.transaction() as tx:
            # A drop of the source, or of its columns, waits for this, or has happened.
            tx.tables.lock_all({stored.source})
            tx.tables.get(stored.source)
            check_unchanged(tx, self._data, source, version, schema)
            tx.tables.add(table)
            tx.stored_queries.add(stored)
        return stored

    def describe(self, caller: Caller, ident: TableIdent) -> StoredQuery:
        """Raises StoredQueryNotFound if the name is that of a table."""
        self._authorizer.require(caller, Permission.READ, ident)
        with self._store.transaction() as tx:
            table = tx.tables.get(ident)
            if table.kind is not TableKind.QUERY:
                raise StoredQueryNotFound(ident)
            return tx.stored_queries.get(table)

    def list_in(self, caller: Caller, namespace: NamespacePath) -> Sequence[str]:
        """The names directly in the namespace that the caller sees, sorted."""
        require_visible(self._authorizer, caller, namespace)
        with self._store.transaction() as tx:
            tables = tx.tables.list_in(namespace, Page())
        queries = [table.ident for table in tables if table.kind is TableKind.QUERY]
        return [ident.name for ident in queries if self._authorizer.sees(caller, ident)]

    def drop(self, caller: Caller, ident: TableIdent) -> None:
        self._authorizer.require(caller, Permission.MANAGE, ident)
        table = self.describe(caller, ident).table
        with self._store.transaction() as tx:
            tx.tables.remove(table.table_id)


def stored_query_of(store: CatalogStore, table: Table) -> StoredQuery:
    with store.transaction() as tx:
        return tx.stored_queries.get(table)


def query_over_source(stored: StoredQuery, source: pa.Schema, query: TableQuery) -> TableQuery:
    """Translates a query on a stored query into one on its source; raises Unsupported if impossible."""
    name = stored.table.ident
    if query.version is not None:
        raise Unsupported(f"version: {name} is a view and has no versions of its own; leave it out")
    is_plain = query.filter is None and not query.order and query.vector is None and query.full_text is None
    if stored.limit is not None and not is_plain:
        raise Unsupported(
            f"{name} is a view with a LIMIT; filters, searches and ordering are not supported on it yet"
        )
    if query.full_text is not None and any(
        quoted_name(alias) != expression for alias, expression in stored.columns.items()
    ):
        raise Unsupported(
            f"full_text_query: {name} is a view that renames or computes columns; search its source instead"
        )
    rewriter = _ColumnRewriter(stored, source)
    vector = query.vector
    if vector is not None and vector.column is not None:
        vector = replace(vector, column=rewriter.source_column(vector.column))
    return replace(
        query,
        columns=rewriter.columns(query),
        filter=rewriter.combined_filter(query.filter),
        vector=vector,
        order=tuple(replace(entry, column=rewriter.source_column(entry.column)) for entry in query.order),
        limit=_combined_limit(stored, query),
    )


class _ColumnRewriter:
    """The columns of a stored query, as expressions over its source."""

    def __init__(self, stored: StoredQuery, source: pa.Schema) -> None:
        self._stored = stored
        self._hidden = set(source.names) - stored.columns.keys()

    def expression(self, text: str, field: str) -> str:
        def replacement(name: str) -> str | None:
            expression = self._stored.columns.get(name)
            if expression is None and name in self._hidden:
                available = ", ".join(self._stored.columns)
                raise InvalidInput(
                    field, f"{self._stored.table.ident} has no column '{name}'; its columns are {available}"
                )
            return None if expression is None else f"({expression})"

        return with_names_replaced(text, replacement, field)

    def combined_filter(self, predicate: str | None) -> str | None:
        """The filter of the stored query combined with the predicate."""
        if predicate is None:
            return self._stored.filter
        inner = self.expression(predicate, "filter")
        return inner if self._stored.filter is None else f"({self._stored.filter}) AND ({inner})"

    def columns(self, query: TableQuery) -> dict[str, str]:
        requested = query.columns
        if requested is None:
            return dict(self._stored.columns)
        if isinstance(requested, tuple):
            return {name: self.expression(_quoted_if_bare(name), "columns") for name in requested}
        return {alias: self.expression(text, f"columns.{alias}"[:200]) for alias, text in requested.items()}

    def source_column(self, column: str) -> str:
        """The column of the source, if the stored query passes it through unchanged."""
        expression = self.expression(_quoted_if_bare(column), "column")
        name = expression.strip("()`").replace("``", "`")
        if quoted_name(name) != expression.strip("()"):
            raise Unsupported(
                f"column: '{column}' of {self._stored.table.ident} is computed by the view; "
                "only columns of its source are supported here"
            )
        return name


def _quoted_if_bare(name: str) -> str:
    """Quotes a bare column name. A path, or a name that is quoted already, stays as it is."""
    return name if "." in name or "`" in name else quoted_name(name)


def _combined_limit(stored: StoredQuery, query: TableQuery) -> int | None:
    if stored.limit is None:
        return query.limit
    left = max(stored.limit - (query.offset or 0), 0)
    return left if query.limit is None else min(left, query.limit)
