"""Looks at a column or view and its source, so that a planner can decide."""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap64

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.functions import Function
from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput
from tidemill.jobs.errors import ColumnNotComputed, ViewNotFound
from tidemill.jobs.model.coverage import Changes, Coverage
from tidemill.jobs.model.derived import ComputedColumn, MaterializedView
from tidemill.jobs.model.jobs import BackfillRequest
from tidemill.jobs.model.plans import FragmentWork
from tidemill.jobs.planner.backfill import ColumnProgress
from tidemill.jobs.planner.refresh import ViewProgress
from tidemill.jobs.ports import JobStore, SourceTables


@dataclass(frozen=True)
class DeclaredColumn:
    """A computed column with its table and function."""

    table: Table
    column: ComputedColumn
    function: Function


@dataclass(frozen=True)
class DeclaredView:
    """A materialized view with its table, source and function."""

    table: Table
    source: Table
    view: MaterializedView
    function: Function | None


@dataclass(frozen=True)
class Layout:
    """Rows by the fragment they are in at a version."""

    version: int
    work: tuple[FragmentWork, ...]


class Assessor:
    def __init__(self, store: JobStore, sources: SourceTables) -> None:
        self._store = store
        self._sources = sources

    def get_column(self, table: Table, name: str) -> DeclaredColumn:
        """Raises TableColumnNotFound, or ColumnNotComputed when it is a plain column."""
        known = self._sources.snapshot(table, None).schema.names
        if name not in known:
            raise TableColumnNotFound(table.ident, name, tuple(known))
        with self._store.transaction() as tx:
            column = tx.derived.find_column(table.table_id, name)
            if column is None:
                raise ColumnNotComputed(table.ident, name)
            return DeclaredColumn(table, column, tx.functions.get(column.function_digest))

    def get_view(self, table: Table) -> DeclaredView:
        with self._store.transaction() as tx:
            view = tx.derived.find_view(table.table_id)
            if view is None:
                raise ViewNotFound(table.ident)
            source = tx.tables.find_by_id(view.source_id)
            digest = view.function_digest
            function = None if digest is None else tx.functions.get(digest)
        if source is None:
            raise InvalidInput("id", f"the source table of {table.ident} was dropped; it cannot be refreshed")
        return DeclaredView(table, source, view, function)

    def column_progress(self, declared: DeclaredColumn, request: BackfillRequest) -> ColumnProgress:
        snapshot = self._sources.snapshot(declared.table, request.read_version)
        with self._store.transaction() as tx:
            found = tx.coverage.find(declared.column.column_id, declared.column.function_digest)
        coverage = found or Coverage(declared.column.function_digest)
        changes = self._changes(declared.table, coverage, snapshot.version, declared.column.inputs)
        is_untouched = request.where is None and (not coverage.rows or changes.is_total)
        located = (
            None if is_untouched else self._sources.locate(declared.table, snapshot.version, request.where)
        )
        return ColumnProgress(snapshot, coverage, changes, located)

    def layout(self, table: Table, rows: BitMap64) -> Layout:
        """Where these rows are now."""
        snapshot = self._sources.snapshot(table, None)
        found = self._sources.locate(table, snapshot.version, None).by_fragment(rows)
        work = tuple(FragmentWork(fragment, ids, len(ids)) for fragment, ids in sorted(found.items()))
        return Layout(snapshot.version, work)

    def view_progress(self, declared: DeclaredView, source_version: int | None) -> ViewProgress:
        snapshot = self._sources.snapshot(declared.source, source_version)
        with self._store.transaction() as tx:
            found = tx.coverage.find(declared.view.view_id, declared.view.digest)
        coverage = found or Coverage(declared.view.digest)
        columns = self._sources.columns_read(
            declared.source, declared.view.query, declared.view.inputs, snapshot.version
        )
        changes = self._changes(declared.source, coverage, snapshot.version, columns)
        located = self._sources.locate(declared.source, snapshot.version, None)
        return ViewProgress(snapshot, coverage, changes, located)

    def _changes(self, table: Table, coverage: Coverage, version: int, columns: tuple[str, ...]) -> Changes:
        """Between the watermark and the version, whichever comes first: rows may go back in time, too."""
        if not coverage.revision or not coverage.rows:
            return Changes()
        first, last = sorted((coverage.watermark, version))
        return self._sources.changes(table, first, last, columns)
