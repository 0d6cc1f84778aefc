"""Looks at a column or view and its source, so that a planner can decide."""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap64

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.functions import Function, FunctionEncoding
from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput
from tidemill.jobs.errors import ColumnNotComputed, ViewNotFound
from tidemill.jobs.model.coverage import Changes, Coverage
from tidemill.jobs.model.derived import ComputedColumn, MaterializedView, SourceQuery, ViewKind
from tidemill.jobs.model.jobs import BackfillRequest
from tidemill.jobs.model.plans import FragmentWork, TableSnapshot
from tidemill.jobs.model.stages import FunctionCall
from tidemill.jobs.planner.backfill import ColumnProgress
from tidemill.jobs.planner.refresh import ViewProgress
from tidemill.jobs.ports import JobStore, JobTransaction, SourceTables


@dataclass(frozen=True)
class DeclaredColumn:
    """A computed column with its table and function."""

    table: Table
    column: ComputedColumn
    function: Function


@dataclass(frozen=True)
class DeclaredView:
    """A materialized view with its table, source and functions: its columns', or the one that makes it."""

    table: Table
    source: Table
    view: MaterializedView
    calls: tuple[FunctionCall, ...]


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
            calls = _calls(tx, view)
        if source is None:
            raise InvalidInput("id", f"the source table of {table.ident} was dropped; it cannot be refreshed")
        return DeclaredView(table, source, view, calls)

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

    def check_readable(self, declared: DeclaredColumn, snapshot: TableSnapshot) -> None:
        """The table may have lost columns since the job was submitted; raises TableColumnNotFound."""
        column, known = declared.column, snapshot.schema.names
        needed = list(column.names)
        if declared.function.encoding is FunctionEncoding.SQL:
            # Its inputs are those it may name; whether it can do without one, the table format says.
            expression = {declared.column.name: declared.function.name}
            self._sources.project(declared.table, SourceQuery((), expression), "computed")
        else:
            needed += [name.split(".")[0] for name in column.inputs]
        for name in needed:
            if name not in known:
                raise TableColumnNotFound(declared.table.ident, name, tuple(known))

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
        query = declared.view.query
        columns = self._sources.columns_read(
            declared.source, query, declared.view.inputs_read, snapshot.version
        )
        changes = self._changes(declared.source, coverage, snapshot.version, columns)
        is_whole = declared.view.kind is ViewKind.UDTF
        where = query.filter if is_whole or query.is_window else None
        located = self._sources.locate(declared.source, snapshot.version, where)
        window = located.window(query.offset, query.limit)
        return ViewProgress(snapshot, coverage, changes, window, is_whole)

    def _changes(self, table: Table, coverage: Coverage, version: int, columns: tuple[str, ...]) -> Changes:
        """Between the watermark and the version, whichever comes first: rows may go back in time, too."""
        if not coverage.revision or not coverage.rows:
            return Changes()
        first, last = sorted((coverage.watermark, version))
        return self._sources.changes(table, first, last, columns)


def _calls(tx: JobTransaction, view: MaterializedView) -> tuple[FunctionCall, ...]:
    if view.function_digest is not None:
        return (FunctionCall(tx.functions.get(view.function_digest), view.inputs),)
    return tuple(
        FunctionCall(tx.functions.get(column.function_digest), column.inputs, column.name)
        for column in view.columns
    )
