"""Looks at a column and its table, so that a planner can decide."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from pyroaring import BitMap64

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.functions import Function
from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput
from tidemill.jobs.errors import ColumnNotComputed
from tidemill.jobs.model.columns import ComputedColumn, subject_of
from tidemill.jobs.model.coverage import Changes, Coverage, Watched
from tidemill.jobs.model.options import BackfillRequest, PreviewRequest
from tidemill.jobs.model.plans import FragmentWork, TableSnapshot
from tidemill.jobs.model.views import SourceQuery
from tidemill.jobs.planning.backfill import ColumnProgress
from tidemill.jobs.ports import JobStore, SourceTables


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
        with self._store.reading() as tx:
            column = tx.derived.find_column(table.table_id, name)
            if column is None:
                raise ColumnNotComputed(table.ident, name)
            return DeclaredColumn(table, column, tx.functions.get(column.function_digest))

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
        if declared.function.is_expression:
            # Its inputs are those it may name; whether it can do without one, the table format says.
            expression = {declared.column.name: declared.function.name}
            self._sources.project(declared.table, SourceQuery((), expression), "computed")
        else:
            needed += [name.split(".")[0] for name in column.inputs]
        for name in needed:
            if name not in known:
                raise TableColumnNotFound(declared.table.ident, name, tuple(known))

    def check_version(self, declared: DeclaredColumn, version: int, field: str) -> None:
        """Raises InvalidInput if the column or one of its inputs is not there at that version."""
        try:
            self.check_readable(declared, self._sources.snapshot(declared.table, version))
        except TableColumnNotFound as error:
            problem = f"version {version} of {declared.table.ident} has no column '{error.column}'"
            raise InvalidInput(field, f"{problem}; give a later version, or none for the latest") from error

    def latest_version(self, table: Table) -> int:
        return self._sources.snapshot(table, None).version

    def layout(self, table: Table, version: int, rows: BitMap64) -> tuple[FragmentWork, ...]:
        """Where these rows are at a version, fragment by fragment."""
        found = self._sources.locate(table, version, None).by_fragment(rows)
        return tuple(FragmentWork(fragment, ids, len(ids)) for fragment, ids in sorted(found.items()))

    def _changes(self, table: Table, coverage: Coverage, version: int, watched: Watched) -> Changes:
        """Between the watermark and the version, whichever comes first: rows may go back in time, too."""
        if not coverage.rows and coverage.watermark <= version:
            return Changes()
        first, last = sorted((coverage.watermark, version))
        return self._sources.changes(table, first, last, watched)
