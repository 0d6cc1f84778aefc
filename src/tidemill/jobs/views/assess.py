"""Looks at a view and its sources, so that a planner can decide how it is refreshed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput
from tidemill.jobs.errors import ViewNotFound
from tidemill.jobs.model.coverage import Changes, Coverage, Watched
from tidemill.jobs.model.derived import (
    MaterializedView,
    RefreshPolicy,
    ViewKind,
    ViewSource,
    source_subject,
    view_output,
)
from tidemill.jobs.model.jobs import JobFilter, JobKind, RefreshRequest
from tidemill.jobs.model.plans import RefreshPlan, TableSnapshot
from tidemill.jobs.model.sql import SqlPlan
from tidemill.jobs.model.stages import FunctionCall, Partition
from tidemill.jobs.model.state import JobState
from tidemill.jobs.planning.output_limit import capped_plan
from tidemill.jobs.planning.refresh import SourceProgress, ViewProgress, plan_refresh
from tidemill.jobs.ports import JobStore, JobTransaction, SourceTables
from tidemill.jobs.stage_errors import VersionGone
from tidemill.jobs.views.sql.plan import plan_sql

# So far back it is looked for what a view was made from, when it has gone on since.
PAST_REFRESHES: Final = 100


@dataclass(frozen=True)
class DeclaredView:
    """A materialized view with its table, its sources and its functions: its columns', or its maker."""

    table: Table
    view: MaterializedView
    sources: tuple[Table, ...]
    calls: tuple[FunctionCall, ...]

    @property
    def source(self) -> Table:
        return self.sources[0]

    def policy(self, request: RefreshRequest) -> RefreshPolicy:
        return request.policy or self.view.policy


@dataclass(frozen=True)
class _Looked:
    """A source at the version it is read at, and what of it matters."""

    table: Table
    snapshot: TableSnapshot
    coverage: Coverage
    columns: tuple[str, ...]
    key_columns: tuple[str, ...] = ()
    where: str | None = None


class ViewAssessor:
    def __init__(self, store: JobStore, sources: SourceTables) -> None:
        self._store = store
        self._sources = sources

    def get_view(self, table: Table) -> DeclaredView:
        """Raises ViewNotFound, or InvalidInput when nobody could refresh it."""
        with self._store.transaction() as tx:
            view = tx.derived.find_view(table.table_id)
            if view is None:
                raise ViewNotFound(table.ident)
            found = [tx.tables.find_by_id(source.table_id) for source in view.sources]
            calls = _calls(tx, view)
        if not view.sources:
            raise InvalidInput(
                "id",
                f"{table.ident} cannot be refreshed: its source_query is in a form that is not understood "
                "here; it must be SQL, or JSON of Tidemill's or Geneva's client",
            )
        for place, source in enumerate(found):
            if source is None:
                name = ".".join(view.sources[place].levels)
                raise InvalidInput(
                    "id", f"{name}, a source of {table.ident}, was dropped; it cannot be refreshed"
                )
        return DeclaredView(table, view, tuple(source for source in found if source is not None), calls)

    def plan(self, declared: DeclaredView, request: RefreshRequest) -> RefreshPlan:
        """What a refresh would do now."""
        progress = self.progress(declared, request.source_version, declared.policy(request))
        return self.plan_of(declared, request, progress)

    def plan_of(self, declared: DeclaredView, request: RefreshRequest, progress: ViewProgress) -> RefreshPlan:
        plan = plan_refresh(progress, declared.policy(request))
        if request.output_limit is None:
            return plan
        latest = self._sources.snapshot(declared.table, None).version
        rows = self._sources.keyed_rows(declared.table, latest, declared.view.key, None)
        return capped_plan(plan, progress.first, request.output_limit, rows)

    def skipped(self, declared: DeclaredView) -> BitMap64:
        """The source rows, or keys, that were skipped because a function failed on them."""
        with self._store.transaction() as tx:
            return tx.errors.rows_of(declared.view.view_id, declared.view.digest)

    def progress(
        self,
        declared: DeclaredView,
        source_version: int | None = None,
        policy: RefreshPolicy = RefreshPolicy.AUTO,
    ) -> ViewProgress:
        """What the planner has to know; a full refresh needs all rows, whether they changed or not."""
        return self._progress(declared, self.versions(declared, source_version), policy)

    def progress_consumed(self, declared: DeclaredView) -> ViewProgress:
        """As it was at the last refresh: every source at the version that the view was made from."""
        versions = [coverage.watermark or None for coverage in self._coverages(declared)]
        return self._progress(declared, versions, RefreshPolicy.FULL)

    def _progress(
        self, declared: DeclaredView, versions: Sequence[int | None], policy: RefreshPolicy
    ) -> ViewProgress:
        sql = None if declared.view.statement is None else self._sql_plan(declared, versions)
        looked = self._look(declared, versions, sql)
        lost = self._lost_reason(declared, looked)
        is_full = lost is not None or policy is RefreshPolicy.FULL
        progress = ViewProgress(
            sources=tuple(
                self._source_progress(declared, number, one, is_full=is_full)
                for number, one in enumerate(looked)
            ),
            whole_reason=_whole_reason(declared.view, sql),
            lost_reason=lost,
            sql=sql,
            has_functions=bool(declared.calls),
        )
        return self._with_keys(declared, progress, looked)

    def versions(self, declared: DeclaredView, source_version: int | None) -> tuple[int | None, ...]:
        """The version of each source to read: a table at the one that the views beside it were made from."""
        if source_version is not None:
            return (source_version,)
        if len(declared.sources) == 1:
            return (None,)
        latest = [self._sources.snapshot(source, None).version for source in declared.sources]
        consumed: dict[UUID, int] = {}
        with self._store.transaction() as tx:
            for source, version in zip(declared.sources, latest, strict=True):
                _note_consumed(tx, source.table_id, version, consumed)
        return tuple(
            consumed.get(source.table_id, version)
            for source, version in zip(declared.sources, latest, strict=True)
        )

    def output(self, declared: DeclaredView) -> pa.Schema:
        """The view's own columns, without metadata of the table as a whole."""
        view = declared.view
        if view.output is not None:
            return view.output.remove_metadata()
        function = declared.calls[0].function if declared.calls else None
        return view_output(view.kind, self._sources.project(declared.source, view.query), function)

    def partitions(self, declared: DeclaredView, version: int) -> Sequence[Partition]:
        """What a table function is called for, each by itself."""
        view = declared.view
        if view.partition_index is not None:
            return self._sources.index_partitions(declared.source, version, view.partition_index)
        if view.partition_by is not None:
            return self._sources.partitions(declared.source, version, view.partition_by, view.query.filter)
        return (Partition(0, "the whole source"),)

    def _sql_plan(self, declared: DeclaredView, versions: Sequence[int | None]) -> SqlPlan:
        view = declared.view
        schemas = [
            (source.levels, _known_columns(self._sources.snapshot(table, version).schema, source))
            for source, table, version in zip(view.sources, declared.sources, versions, strict=True)
        ]
        return plan_sql(view.statement or "", schemas, "source_query")

    def _look(
        self, declared: DeclaredView, versions: Sequence[int | None], sql: SqlPlan | None
    ) -> tuple[_Looked, ...]:
        view = declared.view
        snapshots = [
            self._sources.snapshot(table, version)
            for table, version in zip(declared.sources, versions, strict=True)
        ]
        coverages = self._coverages(declared)
        if sql is not None:
            return tuple(
                _Looked(table, snapshot, coverage, source.columns, source.key_columns)
                for table, snapshot, coverage, source in zip(
                    declared.sources, snapshots, coverages, sql.sources, strict=True
                )
            )
        self._check_readable(declared, snapshots[0])
        columns = self._sources.columns_read(
            declared.source, view.query, view.inputs_read, snapshots[0].version
        )
        is_narrowed = view.kind is ViewKind.UDTF or view.query.is_window
        where = view.query.filter if is_narrowed else None
        keys = () if view.partition_by is None else (view.partition_by,)
        return (_Looked(declared.source, snapshots[0], coverages[0], columns, keys, where),)

    def _coverages(self, declared: DeclaredView) -> tuple[Coverage, ...]:
        view = declared.view
        with self._store.transaction() as tx:
            return tuple(
                tx.coverage.find(source_subject(view.view_id, source.table_id, place), view.digest)
                or Coverage(view.digest)
                for place, source in enumerate(view.sources)
            )

    def _source_progress(
        self, declared: DeclaredView, number: int, one: _Looked, *, is_full: bool
    ) -> SourceProgress:
        levels = declared.view.sources[number].levels
        coverage, version = one.coverage, one.snapshot.version
        is_idle = coverage.revision and coverage.watermark == version and not coverage.outdated
        if is_idle and not is_full and not self._is_capped(declared, one):
            return SourceProgress(levels, one.snapshot, coverage, Changes(), None)
        changes = Changes()
        if coverage.revision and coverage.rows:
            # Rows may go back in time, too.
            first, last = sorted((coverage.watermark, version))
            changes = self._sources.changes(one.table, first, last, Watched(one.columns))
        query = declared.view.query
        located = self._sources.locate(one.table, version, one.where)
        return SourceProgress(
            levels, one.snapshot, coverage, changes, located.window(query.offset, query.limit)
        )

    def _is_capped(self, declared: DeclaredView, one: _Looked) -> bool:
        """Whether an earlier refresh left rows out, so that there is more to see at the same version."""
        return declared.view.kind is ViewKind.CHUNKER and len(one.coverage.rows) < one.snapshot.live_rows

    def _check_readable(self, declared: DeclaredView, snapshot: TableSnapshot) -> None:
        """The source may have lost columns since the view was defined."""
        known = snapshot.schema.names
        for name in declared.view.inputs_read:
            if name.split(".")[0].strip("`") not in known:
                raise TableColumnNotFound(declared.source.ident, name, tuple(known))

    def _lost_reason(self, declared: DeclaredView, looked: Sequence[_Looked]) -> str | None:
        """Somebody may have put another state of the view's rows in the place of what was published."""
        published = max(one.coverage.published for one in looked)
        if not published:
            return None
        latest = self._sources.snapshot(declared.table, None).version
        if latest == published:
            return None
        changes = self._sources.changes(declared.table, published, latest, Watched(()))
        return f"the view itself was changed by others: {changes.reason}" if changes.is_total else None

    def _with_keys(
        self, declared: DeclaredView, progress: ViewProgress, looked: Sequence[_Looked]
    ) -> ViewProgress:
        """With the keys that the changes have to do with, where that can be told."""
        view = declared.view
        is_keyed = view.statement is not None or view.is_partitioned
        if not is_keyed or progress.whole_reason is not None:
            return progress
        is_unknown = any(source.is_new or source.changes.is_total for source in progress.sources)
        if is_unknown or progress.lost_reason is not None:
            return progress
        try:
            keys = self._touched(declared, progress, looked)
        except VersionGone as error:
            return replace(progress, lost_reason=f"the rows before cannot be told: {error}")
        return replace(progress, keys=keys)

    def _touched(self, declared: DeclaredView, progress: ViewProgress, looked: Sequence[_Looked]) -> BitMap64:
        view = declared.view
        if view.partition_index is not None:
            return self._touched_partitions(declared, progress.first, view.partition_index)
        keys = BitMap64()
        for source, one in zip(progress.sources, looked, strict=True):
            now, then = source.inserted | source.updated, source.deleted | source.updated
            keys |= self._sources.key_hashes(one.table, one.snapshot.version, now, one.key_columns)
            keys |= self._sources.key_hashes(one.table, source.coverage.watermark, then, one.key_columns)
        return keys

    def _touched_partitions(self, declared: DeclaredView, source: SourceProgress, column: str) -> BitMap64:
        """Partitions that have other rows than before, or other values in them."""
        if source.located is None:
            return BitMap64()
        now = self._sources.index_partitions(declared.source, source.snapshot.version, column)
        then = self._sources.index_partitions(declared.source, source.coverage.watermark, column)
        before = {partition.key: partition.rows for partition in then}
        touched = {
            partition.key
            for partition in now
            if partition.rows != before.get(partition.key)
            or not source.updated.isdisjoint(partition.rows or BitMap64())
        }
        touched |= before.keys() - {partition.key for partition in now}
        return BitMap64([unsigned(key) for key in touched])


def _known_columns(schema: pa.Schema, source: ViewSource) -> pa.Schema:
    """Without those added since the view was defined."""
    return pa.schema([field for field in schema if not source.columns or field.name in source.columns])


def _whole_reason(view: MaterializedView, sql: SqlPlan | None) -> str | None:
    if sql is not None:
        return sql.full_reason
    if view.kind is ViewKind.UDTF and not view.is_partitioned:
        return "its function takes the source as a whole"
    return None


def unsigned(key: int) -> int:
    """A key as sets of keys hold it."""
    return key % (1 << 64)


def _note_consumed(
    tx: JobTransaction, table_id: UUID, at_version: int | None, consumed: dict[UUID, int]
) -> None:
    """Which versions a view was made from, and those that its sources were made from in turn.

    Where two views have consumed different versions the older one is taken, which both have seen.
    """
    view = tx.derived.find_view(table_id)
    if view is None:
        return
    for place, source in enumerate(view.sources):
        version = _find_consumed(tx, view, place, at_version)
        if version is not None:
            consumed[source.table_id] = min(version, consumed.get(source.table_id, version))
        _note_consumed(tx, source.table_id, version, consumed)


def _find_consumed(
    tx: JobTransaction, view: MaterializedView, place: int, at_version: int | None
) -> int | None:
    """The version of a source that a view was made from when it was at a version of its own."""
    subject_id = source_subject(view.view_id, view.sources[place].table_id, place)
    coverage = tx.coverage.find(subject_id, view.digest)
    if coverage is None:
        return None
    if at_version is None or coverage.published <= at_version:
        return coverage.watermark
    refreshes = JobFilter(subject_id=view.view_id, kind=JobKind.REFRESH, state=JobState.DONE)
    for job in tx.jobs.list_recent(None, PAST_REFRESHES, refreshes):
        if job.result is not None and job.result["version"] <= at_version:
            return int(job.result["sources"][place]["version"])
    return coverage.watermark


def _calls(tx: JobTransaction, view: MaterializedView) -> tuple[FunctionCall, ...]:
    if view.function_digest is not None:
        return (FunctionCall(tx.functions.get(view.function_digest), view.inputs),)
    return tuple(
        FunctionCall(tx.functions.get(column.function_digest), column.inputs, column.name)
        for column in view.columns
    )
