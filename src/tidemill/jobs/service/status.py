"""How far columns and views are behind, where their values come from, and which rows failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyroaring import BitMap64

from tidemill.catalog.model.callers import Caller, Permission, is_deployment
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.catalog.ports import Authorizer
from tidemill.errors import TidemillError, Unavailable
from tidemill.jobs.errors import OwnerRefused, ViewNotFound
from tidemill.jobs.model.columns import ColumnStatus, FunctionRows, subject_of
from tidemill.jobs.model.failures import RowError
from tidemill.jobs.model.jobs import JobFilter, JobKind, JobState
from tidemill.jobs.model.options import BackfillRequest, RefreshRequest, RowSelection
from tidemill.jobs.model.plans import RefreshPlan
from tidemill.jobs.model.views import MaterializedView, RefreshPolicy, ViewKind, source_subject
from tidemill.jobs.owners import OwnerRights
from tidemill.jobs.planning.backfill import ColumnProgress
from tidemill.jobs.planning.column_progress import Assessor, DeclaredColumn
from tidemill.jobs.ports import JobStore, JobTransaction
from tidemill.jobs.service.source_visibility import (
    REASON_IS_HIDDEN,
    refusal_for,
    require_sources,
    sees_sources,
)
from tidemill.jobs.table_ports import SourceTables, TableVersions
from tidemill.jobs.views.behavior import DeclaredView
from tidemill.jobs.views.progress import ViewAssessor

# Whether a view is fresh does not depend on how it wants to be refreshed.
QUESTION: Final = RefreshRequest(policy=RefreshPolicy.AUTO)


class ColumnProvenance:
    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        versions: TableVersions,
        assessor: Assessor,
        rights: OwnerRights,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._versions = versions
        self._assessor = assessor
        self._rights = rights

    def status(self, caller: Caller, ident: TableIdent, column: str, branch: str | None) -> ColumnStatus:
        declared = self._assessor.get_column(self._table(caller, ident, branch), column)
        progress, live = self._look(declared)
        states = _states(progress, live)
        return ColumnStatus(
            column=column,
            branch=declared.table.branch,
            version=progress.snapshot.version,
            rows=len(live),
            fresh=len(live) - sum(map(len, states.values())),
            stale=len(states[RowSelection.STALE]),
            missing=len(states[RowSelection.MISSING]),
            failed=len(states[RowSelection.FAILED]),
            functions=self._functions(declared, live),
            reason=self._problem(declared, progress),
        )

    def rows(
        self,
        caller: Caller,
        ident: TableIdent,
        column: str,
        branch: str | None,
        selection: RowSelection,
        after: int | None,
        limit: int,
    ) -> Sequence[int]:
        """Ids of the rows, ascending, above `after`."""
        declared = self._assessor.get_column(self._table(caller, ident, branch), column)
        progress, live = self._look(declared)
        found = _states(progress, live)[selection]
        if after is not None:
            found -= _up_to(after)
        return list(found[:limit])

    def errors(
        self,
        caller: Caller,
        ident: TableIdent,
        column: str | None,
        branch: str | None,
        *,
        job_id: str | None = None,
        after: int | None = None,
        limit: int = 1000,
    ) -> Sequence[tuple[str, RowError]]:
        """Columns with the rows their functions failed on; of all columns when none is named."""
        table = self._table(caller, ident, branch)
        if column is not None:
            columns = [self._assessor.get_column(table, column).column]
        else:
            columns = [declared.column for declared in self._assessor.list_columns(table)]
        found: list[tuple[str, RowError]] = []
        with self._store.transaction() as tx:
            for declared in columns:
                subject_id = subject_of(declared.column_id, table.branch)
                errors = tx.errors.list_of(subject_id, after, limit - len(found), job_id)
                found += [(declared.name, error) for error in errors]
        return found

    def _look(self, declared: DeclaredColumn) -> tuple[ColumnProgress, BitMap64]:
        progress = self._assessor.column_progress(
            declared, BackfillRequest(declared.column.name, only=RowSelection.STALE)
        )
        assert progress.located is not None
        return progress, progress.located.all_rows()

    def _problem(self, declared: DeclaredColumn, progress: ColumnProgress) -> str | None:
        try:
            self._assessor.check_readable(declared, progress.snapshot)
            self._rights.check_column(declared.column)
        except Unavailable:
            raise
        except TidemillError as error:
            return f"it cannot be computed: {error}"
        return None

    def _functions(self, declared: DeclaredColumn, live: BitMap64) -> tuple[FunctionRows, ...]:
        """By digest; the current one also if no row holds a value of it yet."""
        column = declared.column
        with self._store.transaction() as tx:
            held = {found.digest: found.held & live for found in tx.coverage.list_of(declared.subject_id)}
            held.setdefault(column.function_digest, BitMap64())
            return tuple(
                FunctionRows(
                    digest,
                    _function_name(tx, declared, digest),
                    len(rows),
                    is_current=digest == column.function_digest,
                    is_kept=digest in column.kept_digests,
                )
                for digest, rows in sorted(held.items())
                if rows or digest == column.function_digest
            )

    def _table(self, caller: Caller, ident: TableIdent, branch: str | None) -> Table:
        self._authorizer.require(caller, Permission.READ, ident)
        return self._versions.get_branch(ident, branch or MAIN_BRANCH)


def _function_name(tx: JobTransaction, declared: DeclaredColumn, digest: str) -> str:
    column = declared.column
    if digest == column.function_digest:
        return declared.function.name
    found = tx.functions.find_name(digest, column.table_id, column.function_namespace_id)
    return f"{digest:.15}" if found is None else found


def _states(progress: ColumnProgress, live: BitMap64) -> dict[RowSelection, BitMap64]:
    """The live rows that are not fresh; each is in one state only."""
    failed, stale = progress.failed & live, progress.stale & live
    return {
        RowSelection.STALE: stale,
        RowSelection.MISSING: live - progress.covered - stale - failed,
        RowSelection.FAILED: failed,
    }


def _up_to(row_id: int) -> BitMap64:
    rows = BitMap64()
    rows.add_range(0, row_id + 1)
    return rows


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What of a source is in the view, and what happened to it since; None where that cannot be told."""

    source: tuple[str, ...]
    version_consumed: int | None
    latest_version: int | None
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None

    @property
    def versions_behind(self) -> int | None:
        if self.latest_version is None:
            return None
        return self.latest_version - (self.version_consumed or 0)


@dataclass(frozen=True, slots=True)
class LastRefresh:
    """The newest refresh job; it has a mode once it is done."""

    job_id: str
    state: JobState
    finished_at: datetime | None
    mode: str | None


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """A view at its latest version; fresh when a refresh would find nothing to do, else with the reason.

    Without sources if the caller may not read all of them. It has no owner if it is the deployment's.
    """

    view: tuple[str, ...]
    kind: ViewKind
    policy: RefreshPolicy
    has_auto_refresh: bool
    version: int | None
    is_fresh: bool
    reason: str
    sources: tuple[SourceStatus, ...]
    last_refresh: LastRefresh | None
    owner: str | None = None


class ViewStatusOperations:
    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        versions: TableVersions,
        assessor: ViewAssessor,
        sources: SourceTables,
        rights: OwnerRights,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._versions = versions
        self._assessor = assessor
        self._sources = sources
        self._rights = rights

    def status(self, caller: Caller, ident: TableIdent) -> ViewStatus:
        """Also of a view that cannot be refreshed any more: then the reason says why."""
        table, view = self._get_view(caller, ident)
        plan, reason = self._plan(table)
        with self._store.reading() as tx:
            is_hidden = not sees_sources(tx, self._authorizer, caller, view)
        refusal = self._refusal(caller, view, is_hidden=is_hidden)
        if is_hidden:
            reason = _told_without_sources(plan)
        return ViewStatus(
            view=ident.levels,
            kind=view.kind,
            policy=view.policy,
            has_auto_refresh=view.has_auto_refresh,
            version=self._latest_version(table),
            is_fresh=plan is not None and plan.is_empty,
            reason=refusal or reason,
            owner=None if view.owner is None or is_deployment(view.owner) else view.owner.principal,
            sources=()
            if is_hidden
            else tuple(self._source(view, place, plan) for place in range(len(view.sources))),
            last_refresh=self._last_refresh(view),
        )

    def errors(
        self,
        caller: Caller,
        ident: TableIdent,
        *,
        job_id: str | None = None,
        after: int | None = None,
        limit: int = 1000,
    ) -> Sequence[RowError]:
        """The source rows that the view's functions failed on, for callers who may read them."""
        _, view = self._get_view(caller, ident)
        with self._store.reading() as tx:
            require_sources(tx, self._authorizer, caller, ident, view)
            return tx.errors.list_of(view.view_id, after, limit, job_id)

    def _get_view(self, caller: Caller, ident: TableIdent) -> tuple[Table, MaterializedView]:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self._versions.get_branch(ident, MAIN_BRANCH)
        with self._store.reading() as tx:
            view = tx.derived.find_view(table.table_id)
        if view is None:
            raise ViewNotFound(ident)
        return table, view

    def _refusal(self, caller: Caller, view: MaterializedView, *, is_hidden: bool) -> str | None:
        """Why a refresh would be refused with the rights of the owner, if it would."""
        try:
            self._rights.check_view(view.view_id)
        except OwnerRefused as error:
            return f"it cannot be refreshed: {refusal_for(caller, view, str(error), is_hidden=is_hidden)}"
        return None

    def _plan(self, table: Table) -> tuple[RefreshPlan | None, str]:
        try:
            declared = self._assessor.get_view(table)
            self._check_columns(declared)
            plan = self._assessor.plan(declared, QUESTION)
        except Unavailable:
            raise
        except TidemillError as error:
            return None, f"it cannot be refreshed: {error}"
        return plan, plan.reason

    def _check_columns(self, declared: DeclaredView) -> None:
        """Raises InvalidInput if a column that its expressions read is gone; SQL is checked by its plan."""
        if declared.view.statement is None:
            for source in declared.sources:
                self._sources.project(source, declared.view.query)

    def _source(self, view: MaterializedView, place: int, plan: RefreshPlan | None) -> SourceStatus:
        source = view.sources[place]
        with self._store.reading() as tx:
            table = tx.tables.find_by_id(source.table_id)
            subject_id = source_subject(view.view_id, source.table_id, place)
            coverage = tx.coverage.find(subject_id, view.digest)
        change = None if plan is None else plan.changes[place]
        return SourceStatus(
            source=source.levels if table is None else table.ident.levels,
            version_consumed=None if coverage is None else coverage.watermark,
            latest_version=None if table is None else self._latest_version(table),
            inserted=None if change is None else change.inserted,
            updated=None if change is None else change.updated,
            deleted=None if change is None else change.deleted,
        )

    def _latest_version(self, table: Table) -> int | None:
        latest = self._versions.find_latest(table)
        return None if latest is None else latest.version

    def _last_refresh(self, view: MaterializedView) -> LastRefresh | None:
        wanted = JobFilter(subject_id=view.view_id, kind=JobKind.REFRESH)
        with self._store.reading() as tx:
            last = next(iter(tx.jobs.list_recent(None, 1, wanted)), None)
        if last is None:
            return None
        mode = None if last.result is None else last.result.get("mode")
        return LastRefresh(last.job_id, last.state, last.finished_at, mode)


def _told_without_sources(plan: RefreshPlan | None) -> str:
    if plan is None:
        return f"it cannot be refreshed; {REASON_IS_HIDDEN}"
    return "it is up to date" if plan.is_empty else "it is behind what it is made from"
