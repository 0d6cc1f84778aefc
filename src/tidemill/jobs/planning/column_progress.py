"""Looks at a column and its table, so that a planner can decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from pyroaring import BitMap64

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.functions import Function
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.errors import InvalidInput
from tidemill.jobs.errors import ColumnNotComputed
from tidemill.jobs.model.columns import ComputedColumn, FunctionCall, input_expressions, subject_of
from tidemill.jobs.model.coverage import Changes, Coverage, Watched, advance
from tidemill.jobs.model.options import BackfillRequest, PreviewRequest
from tidemill.jobs.model.plans import FragmentWork, TableSnapshot
from tidemill.jobs.model.views import SourceQuery
from tidemill.jobs.planning.backfill import ColumnProgress
from tidemill.jobs.planning.bindings import ColumnBindings
from tidemill.jobs.ports import JobStore, JobTransaction
from tidemill.jobs.table_ports import SourceTables


@dataclass(frozen=True)
class DeclaredColumn:
    """A computed column with its table and function."""

    table: Table
    column: ComputedColumn
    function: Function

    @property
    def subject_id(self) -> UUID:
        return subject_of(self.column.column_id, self.table.branch)

    @property
    def call(self) -> FunctionCall:
        return FunctionCall(self.function, self.column.inputs)

    def watched(self, own_versions: frozenset[int] = frozenset()) -> Watched:
        """What its values depend on; no fingerprint can be made of what the function opens itself."""
        expressions = () if self.function.blob_parameters else input_expressions(self.call)
        return Watched(self.column.inputs, self.column.names, own_versions, expressions)


@dataclass(frozen=True)
class _Known:
    """What the catalog has recorded about a column."""

    coverage: Coverage
    others: BitMap64
    failed: BitMap64
    watched: Watched


class Assessor:
    def __init__(self, store: JobStore, sources: SourceTables) -> None:
        self._store = store
        self._sources = sources
        self._bindings = ColumnBindings(store, sources)

    def get_column(self, table: Table, name: str) -> DeclaredColumn:
        """Raises TableColumnNotFound, or ColumnNotComputed when it is a plain column."""
        snapshot = self._sources.snapshot(table, None)
        if name not in snapshot.schema.names:
            raise TableColumnNotFound(table.ident, name, tuple(snapshot.schema.names))
        for column, function in self._bindings.columns_of(table, snapshot):
            if name in column.names:
                return DeclaredColumn(table, column, function)
        raise ColumnNotComputed(table.ident, name)

    def get_subject(self, table: Table, subject_id: UUID, name: str) -> DeclaredColumn:
        """The column that a job was submitted for: it may have been renamed while the job waited."""
        for declared in self.list_columns(table):
            if declared.subject_id == subject_id:
                return declared
        return self.get_column(table, name)

    def list_columns(self, table: Table) -> Sequence[DeclaredColumn]:
        """All computed columns, under the names that they have now."""
        return [
            DeclaredColumn(table, column, function) for column, function in self._bindings.columns_of(table)
        ]

    def followed(self, declared: DeclaredColumn, version: int | None = None) -> DeclaredColumn:
        """The column under the names that it has at a version; as it was if it was declared again."""
        snapshot = self._sources.snapshot(declared.table, version)
        for column, _ in self._bindings.columns_of(declared.table, snapshot):
            if column.is_same_declaration(declared.column):
                return replace(declared, column=column)
        return declared

    def column_progress(
        self, declared: DeclaredColumn, request: BackfillRequest | PreviewRequest
    ) -> ColumnProgress:
        version = request.read_version if isinstance(request, BackfillRequest) else None
        only = request.only if isinstance(request, BackfillRequest) else None
        snapshot = self._sources.snapshot(declared.table, version)
        known = self._known(declared, snapshot.version)
        changes = self._changes(declared.table, known.coverage, snapshot.version, known.watched)
        kept = self._kept(declared, snapshot.version) - known.failed
        progress = ColumnProgress(snapshot, known.coverage, changes, None, known.others, known.failed, kept)
        if request.where is None and only is None and version is None and not progress.covered:
            return progress
        located = self._sources.locate(declared.table, snapshot.version, request.where)
        if version is not None:
            # There is no use in computing rows that are gone by now.
            latest = self.latest_version(declared.table)
            located = located.among(self._sources.locate(declared.table, latest, None).all_rows())
        return replace(progress, located=located)

    def _kept(self, declared: DeclaredColumn, version: int) -> BitMap64:
        """Rows with values of versions that are kept, as far as the inputs have not changed since."""
        rows = BitMap64()
        for digest in declared.column.kept_digests:
            with self._store.transaction() as tx:
                coverage = tx.coverage.find(declared.subject_id, digest) or Coverage(digest)
                own = tx.parts.versions_of(declared.subject_id, min(coverage.watermark, version))
            if coverage.rows and coverage.watermark <= version:
                changes = self._changes(declared.table, coverage, version, declared.watched(own))
                coverage = advance(coverage, changes, version)
            rows |= coverage.rows
        return rows

    def _known(self, declared: DeclaredColumn, version: int) -> _Known:
        digest, others = declared.column.function_digest, BitMap64()
        coverage = Coverage(digest)
        with self._store.transaction() as tx:
            for found in tx.coverage.list_of(declared.subject_id):
                if found.digest == digest:
                    coverage = found
                else:
                    others |= found.held
            if not coverage.revision and declared.table.branch != MAIN_BRANCH:
                coverage = _inherited(tx, declared)
            failed = BitMap64()
            for version_digest in (digest, *declared.column.kept_digests):
                failed |= tx.errors.rows_of(declared.subject_id, version_digest)
            own = tx.parts.versions_of(declared.subject_id, min(coverage.watermark, version))
        return _Known(coverage, others, failed, declared.watched(own))

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
            snapshot = self._sources.snapshot(declared.table, version)
            self.check_readable(self.followed(declared, version), snapshot)
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
        has_fingerprints = watched.expressions and (coverage.segments or not coverage.rows)
        if has_fingerprints and version >= max(coverage.watermark, coverage.published):
            return self._sources.check_results(table, version, coverage, watched)
        if not coverage.rows and version >= coverage.watermark:
            return Changes()
        first, last = sorted((coverage.watermark, version))
        return self._sources.changes(table, first, last, watched)


def _inherited(tx: JobTransaction, declared: DeclaredColumn) -> Coverage:
    """What a new branch knows: results of main are right on it as well, as long as they have not failed."""
    digest, column_id = declared.column.function_digest, declared.column.column_id
    main = tx.coverage.find(column_id, digest)
    if main is None:
        return Coverage(digest)
    held = main.held - tx.errors.rows_of(column_id, digest)
    return Coverage(digest, segments=main.segments, outdated=held)
