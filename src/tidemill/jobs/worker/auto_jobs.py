"""Columns and views that follow their sources: looks which have fallen behind and submits their jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final, TypeAlias
from uuid import UUID

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Table
from tidemill.errors import TidemillError, Unavailable
from tidemill.jobs.errors import ColumnNotComputed, JobAlreadyActive, OwnerRefused
from tidemill.jobs.model.columns import ComputedColumn
from tidemill.jobs.model.jobs import Job, JobFilter, JobKind
from tidemill.jobs.model.options import BackfillRequest, RefreshRequest
from tidemill.jobs.model.plans import RefreshPlan, SourceChange
from tidemill.jobs.model.views import MaterializedView, RefreshPolicy, source_subject
from tidemill.jobs.planning.backfill import plan_backfill
from tidemill.jobs.planning.column_progress import Assessor, DeclaredColumn
from tidemill.jobs.ports import JobStore, JobTransaction
from tidemill.jobs.table_ports import TableVersions
from tidemill.jobs.views.progress import ViewAssessor

# Handed in by whoever wires both: jobs are submitted by the service, and the worker does not know it.
SubmitBackfill: TypeAlias = Callable[[Caller, TableIdent, BackfillRequest, str | None], Job]
SubmitRefresh: TypeAlias = Callable[[Caller, TableIdent, RefreshRequest, str | None], Job]

REQUEST: Final = RefreshRequest()
# Whether a view is behind does not depend on how it wants to be refreshed.
QUESTION: Final = RefreshRequest(policy=RefreshPolicy.AUTO)


@dataclass(frozen=True)
class AutoRefreshPolicy:
    """From how many changed rows on a view is refreshed, and how long it is left alone after its last job.

    With a `fraction`, they have to be that part of the rows it was made from as well.
    """

    rows: int = 1
    fraction: float | None = None
    cooldown: timedelta = timedelta(seconds=60)

    def is_reached(self, changed: int, consumed: int) -> bool:
        return changed >= max(self.rows, (self.fraction or 0) * consumed)


class _Standing(Enum):
    """Whether a view may have another refresh."""

    ACTIVE = "active"
    RESTING = "resting"
    READY = "ready"


@dataclass(frozen=True)
class _Consumed:
    """The version of each source that a view is made from (None: it never was), and how many rows."""

    versions: tuple[int | None, ...]
    rows: int

    @property
    def is_nothing(self) -> bool:
        return all(version is None for version in self.versions)


@dataclass(frozen=True)
class _Seen:
    """Everything that a view's plan depends on: as long as it is the same, so is the plan.

    `latest` are the versions of the view itself and of its sources; which one of a table is taken also
    depends on what the views above have consumed of it.
    """

    digest: str
    latest: tuple[int | None, ...]
    consumed: tuple[int | None, ...]
    above: tuple[tuple[int | None, ...], ...]


class AutoRefresh:
    def __init__(
        self,
        store: JobStore,
        versions: TableVersions,
        assessor: ViewAssessor,
        submit: SubmitRefresh,
        caller: Caller,
        policy: AutoRefreshPolicy,
        check: Callable[[UUID], None] = lambda view_id: None,
    ) -> None:
        """`check` raises for a view that its owner may not have refreshed."""
        self._check = check
        self._store = store
        self._versions = versions
        self._assessor = assessor
        self._submit = submit
        self._caller = caller
        self._policy = policy
        # What was seen when a view needed nothing, or was tried in vain.
        self._idle: dict[UUID, _Seen] = {}

    def look(self) -> list[Job]:
        """Submits what is due; whoever looks at the same time gets the same jobs.

        A view waits until all that it is made from are through.
        """
        with self._store.reading() as tx:
            chain = _in_order(tx, tx.derived.list_auto_views())
        submitted: list[Job] = []
        busy: set[UUID] = set()
        for view in chain.values():
            if busy.isdisjoint(source.table_id for source in view.sources):
                standing = self._standing(view)
                job = self._submitted(view, chain) if standing is _Standing.READY else None
                if job is not None:
                    submitted.append(job)
                elif standing is not _Standing.ACTIVE:
                    continue
            busy.add(view.view_id)
        return submitted

    def _standing(self, view: MaterializedView) -> _Standing:
        """One that does not refresh itself, or that nobody here can read, never is ready."""
        with self._store.reading() as tx:
            last = tx.jobs.list_recent(None, 1, JobFilter(subject_id=view.view_id, kind=JobKind.REFRESH))
            now = tx.now()
        if last and not last[0].state.is_final:
            return _Standing.ACTIVE
        ended_at = last[0].finished_at if last else None
        is_resting = ended_at is not None and now - ended_at < self._policy.cooldown
        can_follow = view.has_auto_refresh and bool(view.sources)
        return _Standing.READY if can_follow and not is_resting else _Standing.RESTING

    def _submitted(self, view: MaterializedView, chain: Mapping[UUID, MaterializedView]) -> Job | None:
        try:
            consumed, seen = self._look_at(view, chain)
            if self._idle.get(view.view_id) == seen:
                return None
            job = self._submit_if_due(view, consumed, seen)
        except Unavailable:
            raise
        except TidemillError:
            # One that was dropped, or cannot be refreshed, keeps no other from it.
            return None
        if job is None or job.state.is_final:
            self._idle[view.view_id] = seen
            return None
        return job

    def _look_at(
        self, view: MaterializedView, chain: Mapping[UUID, MaterializedView]
    ) -> tuple[_Consumed, _Seen]:
        with self._store.reading() as tx:
            consumed = _consumed(tx, view)
            above = tuple(_consumed(tx, other).versions for other in _above(view, chain))
            ids = [view.view_id, *(source.table_id for source in view.sources)]
            tables = [tx.tables.find_by_id(table_id) for table_id in ids]
        found = [None if table is None else self._versions.find_latest(table) for table in tables]
        latest = tuple(None if version is None else version.version for version in found)
        return consumed, _Seen(view.digest, latest, consumed.versions, above)

    def _submit_if_due(self, view: MaterializedView, consumed: _Consumed, seen: _Seen) -> Job | None:
        with self._store.reading() as tx:
            table = tx.tables.find_by_id(view.view_id)
        if table is None:
            return None
        plan = self._assessor.plan(self._assessor.get_view(table), QUESTION)
        if not self._is_due(plan, consumed):
            return None
        self._check(view.view_id)
        # A job that failed is not tried again before a source, the view or its definition has changed.
        key = f"auto/{view.view_id}/{view.digest}/{seen.latest[0]}/{_versions(plan.changes)}"
        return self._submit(self._caller, table.ident, REQUEST, key)

    def _is_due(self, plan: RefreshPlan, consumed: _Consumed) -> bool:
        if consumed.is_nothing:
            return True
        changed = [_changed_rows(change) for change in plan.changes]
        known = [rows for rows in changed if rows is not None]
        if plan.is_empty or len(known) < len(changed):
            return not plan.is_empty
        # Everything has to be made anew though no source has changed: others have written into the view.
        is_spoiled = plan.is_full and not sum(known)
        return is_spoiled or self._policy.is_reached(sum(known), consumed.rows)


def _in_order(tx: JobTransaction, wanted: Sequence[MaterializedView]) -> dict[UUID, MaterializedView]:
    """The views and all views that they are made from, each after those."""
    known: dict[UUID, MaterializedView | None] = {view.view_id: view for view in wanted}
    ordered: dict[UUID, MaterializedView] = {}

    def visit(table_id: UUID) -> None:
        if table_id not in known:
            known[table_id] = tx.derived.find_view(table_id)
        view = known[table_id]
        if view is None or table_id in ordered:
            return
        for source in view.sources:
            visit(source.table_id)
        ordered[table_id] = view

    for view in wanted:
        visit(view.view_id)
    return ordered


def _above(view: MaterializedView, chain: Mapping[UUID, MaterializedView]) -> Iterable[MaterializedView]:
    """All views that this one is made from, directly or not."""
    found: dict[UUID, MaterializedView] = {}
    waiting = list(view.sources)
    while waiting:
        table_id = waiting.pop().table_id
        if table_id in chain and table_id not in found:
            found[table_id] = chain[table_id]
            waiting += chain[table_id].sources
    return found.values()


def _consumed(tx: JobTransaction, view: MaterializedView) -> _Consumed:
    found = [
        tx.coverage.find(source_subject(view.view_id, source.table_id, place), view.digest)
        for place, source in enumerate(view.sources)
    ]
    versions = tuple(None if coverage is None else coverage.watermark for coverage in found)
    return _Consumed(versions, sum(len(coverage.rows) for coverage in found if coverage is not None))


def _changed_rows(change: SourceChange) -> int | None:
    if change.inserted is None or change.updated is None or change.deleted is None:
        return None
    return change.inserted + change.updated + change.deleted


def _versions(changes: Sequence[SourceChange]) -> str:
    return ",".join(f"{change.from_version or 0}-{change.version}" for change in changes)


@dataclass(frozen=True)
class AutoBackfillPolicy:
    """From how many rows on a column is filled, and how long it is left alone after its last job."""

    rows: int = 1
    cooldown: timedelta = timedelta(seconds=60)


class AutoBackfill:
    def __init__(
        self,
        store: JobStore,
        assessor: Assessor,
        submit: SubmitBackfill,
        caller: Caller,
        policy: AutoBackfillPolicy,
        check: Callable[[ComputedColumn], None] = lambda column: None,
    ) -> None:
        """`check` raises OwnerRefused for a column whose owner may not use its function."""
        self._check = check
        self._store = store
        self._assessor = assessor
        self._submit = submit
        self._caller = caller
        self._policy = policy
        # The version at which a column needed nothing: at the same one it still does not.
        self._idle: dict[tuple[UUID, str], int] = {}

    def look(self) -> list[Job]:
        """Submits what is due; whoever looks at the same time gets the same jobs."""
        with self._store.transaction() as tx:
            columns = tx.derived.list_auto_columns()
        submitted = [self._submitted(column) for column in columns]
        return [job for job in submitted if job is not None]

    def _submitted(self, column: ComputedColumn) -> Job | None:
        if not self._is_rested(column):
            return None
        with self._store.transaction() as tx:
            table = tx.tables.find_by_id(column.table_id)
        if table is None:
            return None
        try:
            declared = self._find_declared(table, column)
            if declared is None:
                return None
            request = BackfillRequest(declared.column.name)
            known = column.column_id, column.function_digest
            if self._idle.get(known) == self._assessor.latest_version(table):
                return None
            progress = self._assessor.column_progress(declared, request)
            if plan_backfill(progress, request, slots=1).rows < self._policy.rows:
                self._idle[known] = progress.snapshot.version
                return None
            self._check(column)
            # A job that failed is not tried again before the table or the function has changed.
            key = f"auto/{column.column_id}/{column.function_digest}/{progress.snapshot.version}"
            return self._submit(self._caller, table.ident, request, key)
        except (ColumnNotComputed, JobAlreadyActive, OwnerRefused, TableColumnNotFound):
            return None

    def _find_declared(self, table: Table, column: ComputedColumn) -> DeclaredColumn | None:
        """Under the name that it has now."""
        columns = self._assessor.list_columns(table)
        return next((one for one in columns if one.column.column_id == column.column_id), None)

    def _is_rested(self, column: ComputedColumn) -> bool:
        with self._store.transaction() as tx:
            last = tx.jobs.list_recent(None, 1, JobFilter(subject_id=column.column_id))
            if not last:
                return True
            ended_at = last[0].finished_at
            return ended_at is not None and tx.now() - ended_at >= self._policy.cooldown
