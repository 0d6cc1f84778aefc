"""Looks at a column or view and its source, so that a planner can decide."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from pyroaring import BitMap64

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.functions import Function, FunctionEncoding
from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput
from tidemill.jobs.errors import ColumnNotComputed, ViewNotFound
from tidemill.jobs.model.coverage import Changes, Coverage, Watched
from tidemill.jobs.model.derived import (
    ComputedColumn,
    MaterializedView,
    SourceQuery,
    ViewKind,
    subject_of,
)
from tidemill.jobs.model.jobs import BackfillRequest, PreviewRequest
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

    @property
    def subject_id(self) -> UUID:
        return subject_of(self.column.column_id, self.table.branch)


@dataclass(frozen=True)
class DeclaredView:
    """A materialized view with its table, source and functions: its columns', or the one that makes it."""

    table: Table
    source: Table
    view: MaterializedView
    calls: tuple[FunctionCall, ...]


@dataclass(frozen=True)
class _Known:
    """What the catalog has recorded about a column."""

    coverage: Coverage
    others: BitMap64
    failed: BitMap64
    watched: Watched

    def is_newer(self, version: int) -> bool:
        return self.coverage.watermark > version


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

    def column_progress(
        self, declared: DeclaredColumn, request: BackfillRequest | PreviewRequest
    ) -> ColumnProgress:
        version = request.read_version if isinstance(request, BackfillRequest) else None
        only = request.only if isinstance(request, BackfillRequest) else None
        snapshot = self._sources.snapshot(declared.table, version)
        known = self._known(declared, snapshot.version)
        changes = self._changes(declared.table, known.coverage, snapshot.version, known.watched)
        is_untouched = not known.coverage.rows or (changes.is_total and not known.is_newer(snapshot.version))
        located = None
        if request.where is not None or only is not None or not is_untouched:
            located = self._sources.locate(declared.table, snapshot.version, request.where)
        return ColumnProgress(snapshot, known.coverage, changes, located, known.others, known.failed)

    def _known(self, declared: DeclaredColumn, version: int) -> _Known:
        digest, others = declared.column.function_digest, BitMap64()
        coverage = Coverage(digest)
        with self._store.transaction() as tx:
            for found in tx.coverage.list_of(declared.subject_id):
                if found.digest == digest:
                    coverage = found
                else:
                    others |= found.held
            failed = tx.errors.rows_of(declared.subject_id, digest)
            own = tx.parts.versions_of(declared.subject_id, min(coverage.watermark, version))
        watched = Watched(declared.column.inputs, declared.column.names, own)
        return _Known(coverage, others, failed, watched)

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

    def latest_version(self, table: Table) -> int:
        return self._sources.snapshot(table, None).version

    def layout(self, table: Table, version: int, rows: BitMap64) -> tuple[FragmentWork, ...]:
        """Where these rows are at a version, fragment by fragment."""
        found = self._sources.locate(table, version, None).by_fragment(rows)
        return tuple(FragmentWork(fragment, ids, len(ids)) for fragment, ids in sorted(found.items()))

    def view_progress(self, declared: DeclaredView, source_version: int | None) -> ViewProgress:
        snapshot = self._sources.snapshot(declared.source, source_version)
        with self._store.transaction() as tx:
            found = tx.coverage.find(declared.view.view_id, declared.view.digest)
        coverage = found or Coverage(declared.view.digest)
        query = declared.view.query
        columns = self._sources.columns_read(
            declared.source, query, declared.view.inputs_read, snapshot.version
        )
        changes = self._changes(declared.source, coverage, snapshot.version, Watched(columns))
        is_whole = declared.view.kind is ViewKind.UDTF
        where = query.filter if is_whole or query.is_window else None
        located = self._sources.locate(declared.source, snapshot.version, where)
        window = located.window(query.offset, query.limit)
        return ViewProgress(snapshot, coverage, changes, window, is_whole)

    def _changes(self, table: Table, coverage: Coverage, version: int, watched: Watched) -> Changes:
        """Between the watermark and the version, whichever comes first: rows may go back in time, too."""
        if not coverage.revision or not coverage.rows:
            return Changes()
        first, last = sorted((coverage.watermark, version))
        return self._sources.changes(table, first, last, watched)


def _calls(tx: JobTransaction, view: MaterializedView) -> tuple[FunctionCall, ...]:
    if view.function_digest is not None:
        return (FunctionCall(tx.functions.get(view.function_digest), view.inputs),)
    return tuple(
        FunctionCall(tx.functions.get(column.function_digest), column.inputs, column.name)
        for column in view.columns
    )
