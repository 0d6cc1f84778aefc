"""Looks at a view and its sources, so that a planner can decide how it is refreshed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput
from tidemill.jobs.errors import ViewNotFound
from tidemill.jobs.model.columns import FunctionCall
from tidemill.jobs.model.coverage import Changes, Coverage
from tidemill.jobs.model.jobs import JobFilter, JobKind, JobState
from tidemill.jobs.model.options import RefreshRequest
from tidemill.jobs.model.plans import RefreshPlan, ViewEdits
from tidemill.jobs.model.views import (
    KEY,
    SOURCE_ROW_ID,
    MaterializedView,
    RefreshPolicy,
    source_subject,
)
from tidemill.jobs.planning.refresh import SourceProgress, ViewProgress, capped_plan, plan_refresh
from tidemill.jobs.ports import JobStore, JobTransaction
from tidemill.jobs.stage_errors import VersionGone
from tidemill.jobs.table_ports import SourceTables
from tidemill.jobs.views.behavior import DeclaredView, SourceReading, ViewReading
from tidemill.jobs.views.kinds import behavior_of

# So far back it is looked for what a view was made from, when it has gone on since.
PAST_REFRESHES: Final = 100


class ViewAssessor:
    def __init__(self, store: JobStore, sources: SourceTables) -> None:
        self._store = store
        self._sources = sources

    def get_view(self, table: Table) -> DeclaredView:
        """Raises ViewNotFound, or InvalidInput when nobody could refresh it."""
        with self._store.reading() as tx:
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
        key = behavior_of(declared.view).key(declared.view)
        rows = self._sources.keyed_rows(declared.table, latest, key, None)
        return capped_plan(plan, progress.first, request.output_limit, rows)

    def count_passing(self, declared: DeclaredView, plan: RefreshPlan) -> int:
        """The rows of a plan that the view's functions will see: those that pass its filter.

        A count for people, who ask what functions will cost. It scans the columns of the filter.
        """
        query = declared.view.query
        is_by_row = behavior_of(declared.view).key(declared.view) == SOURCE_ROW_ID
        if not (declared.calls and is_by_row and plan.work) or query.filter is None or query.is_window:
            return plan.rows
        found = self._sources.locate(declared.source, plan.source_version, query.filter).by_fragment()
        nothing = BitMap64()
        passing = [(found.get(item.fragment_id, nothing), item.rows) for item in plan.work]
        return sum(len(rows) if wanted is None else len(rows & wanted) for rows, wanted in passing)

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
        reading = self._read(declared, versions)
        edits = self._edits(declared, reading)
        is_full = edits.lost_reason is not None or policy is RefreshPolicy.FULL
        progress = ViewProgress(
            sources=tuple(
                self._source_progress(declared, number, one, edits, is_full=is_full)
                for number, one in enumerate(reading.sources)
            ),
            whole_reason=reading.whole_reason,
            lost_reason=edits.lost_reason,
            sql=reading.sql,
            has_functions=bool(declared.calls),
            edits=edits,
        )
        return self._with_keys(declared, progress, reading)

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
        return behavior_of(view).output(self._sources.project(declared.source, view.query), function)

    def _read(self, declared: DeclaredView, versions: Sequence[int | None]) -> ViewReading:
        return behavior_of(declared.view).read(declared, versions, self._coverages(declared), self._sources)

    def _coverages(self, declared: DeclaredView) -> tuple[Coverage, ...]:
        view = declared.view
        with self._store.transaction() as tx:
            return tuple(
                tx.coverage.find(source_subject(view.view_id, source.table_id, place), view.digest)
                or Coverage(view.digest)
                for place, source in enumerate(view.sources)
            )

    def _source_progress(
        self, declared: DeclaredView, number: int, one: SourceReading, edits: ViewEdits, *, is_full: bool
    ) -> SourceProgress:
        levels, behavior = declared.view.sources[number].levels, behavior_of(declared.view)
        coverage, version = one.coverage, one.snapshot.version
        edited = edits.keys if behavior.key(declared.view) == SOURCE_ROW_ID else BitMap64()
        is_idle = coverage.revision and coverage.watermark == version and not coverage.outdated
        if is_idle and not is_full and not edited and not behavior.is_capped(one):
            return SourceProgress(levels, one.snapshot, coverage, Changes(), None)
        # Rows may go back in time, too.
        changes = self._sources.changed_rows(one.table, version, coverage, one.columns)
        query = declared.view.query
        located = self._sources.locate(one.table, version, one.where)
        window = located.window(query.offset, query.limit)
        return SourceProgress(levels, one.snapshot, coverage, changes, window, edited)

    def _edits(self, declared: DeclaredView, reading: ViewReading) -> ViewEdits:
        """What others did to the view's rows since they were published."""
        published = max(one.coverage.published for one in reading.sources)
        if not published:
            return ViewEdits(0)
        columns = self.output(declared).names
        key = behavior_of(declared.view).key(declared.view)
        edits = self._sources.view_edits(declared.table, published, key, columns)
        if edits.lost_reason is None:
            return edits
        return replace(edits, lost_reason=f"the view itself was changed by others: {edits.lost_reason}")

    def _with_keys(
        self, declared: DeclaredView, progress: ViewProgress, reading: ViewReading
    ) -> ViewProgress:
        """With the keys that the changes have to do with, where that can be told."""
        behavior = behavior_of(declared.view)
        if behavior.key(declared.view) != KEY or progress.whole_reason is not None:
            return progress
        is_unknown = any(source.is_new or source.changes.is_total for source in progress.sources)
        if is_unknown or progress.lost_reason is not None:
            return progress
        try:
            keys = behavior.touched_keys(declared, progress, reading, self._sources)
        except VersionGone as error:
            return replace(progress, lost_reason=f"the rows before cannot be told: {error}")
        return replace(progress, keys=keys | progress.edits.keys)


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
    functions = {key.digest: tx.functions.get(key) for key in view.function_keys}
    if view.function_digest is not None:
        return (FunctionCall(functions[view.function_digest], view.inputs),)
    return tuple(
        FunctionCall(functions[column.function_digest], column.inputs, column.name) for column in view.columns
    )
