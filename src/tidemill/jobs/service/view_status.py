"""How far views are behind their sources, and on which rows their functions failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.catalog.ports import Authorizer
from tidemill.errors import TidemillError, Unavailable
from tidemill.jobs.errors import ViewNotFound
from tidemill.jobs.model.derived import MaterializedView, RefreshPolicy, source_subject
from tidemill.jobs.model.failures import RowError
from tidemill.jobs.model.jobs import JobFilter, JobKind, RefreshRequest
from tidemill.jobs.model.plans import RefreshPlan
from tidemill.jobs.model.view_status import LastRefresh, SourceStatus, ViewStatus
from tidemill.jobs.ports import JobStore, TableVersions
from tidemill.jobs.views.assess import ViewAssessor

# Whether a view is fresh does not depend on how it wants to be refreshed.
QUESTION: Final = RefreshRequest(policy=RefreshPolicy.AUTO)


class ViewStatusOperations:
    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        versions: TableVersions,
        assessor: ViewAssessor,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._versions = versions
        self._assessor = assessor

    def status(self, caller: Caller, ident: TableIdent) -> ViewStatus:
        """Also of a view that cannot be refreshed any more: then the reason says why."""
        table, view = self._get_view(caller, ident)
        plan, reason = self._plan(table)
        return ViewStatus(
            view=ident.levels,
            kind=view.kind,
            policy=view.policy,
            has_auto_refresh=view.has_auto_refresh,
            version=self._latest_version(table),
            is_fresh=plan is not None and plan.is_empty,
            reason=reason,
            sources=tuple(self._source(view, place, plan) for place in range(len(view.sources))),
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
        """The source rows that the view's functions failed on."""
        _, view = self._get_view(caller, ident)
        with self._store.reading() as tx:
            return tx.errors.list_of(view.view_id, after, limit, job_id)

    def _get_view(self, caller: Caller, ident: TableIdent) -> tuple[Table, MaterializedView]:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self._versions.get_branch(ident, MAIN_BRANCH)
        with self._store.reading() as tx:
            view = tx.derived.find_view(table.table_id)
        if view is None:
            raise ViewNotFound(ident)
        return table, view

    def _plan(self, table: Table) -> tuple[RefreshPlan | None, str]:
        try:
            plan = self._assessor.plan(self._assessor.get_view(table), QUESTION)
        except Unavailable:
            raise
        except TidemillError as error:
            return None, f"it cannot be refreshed: {error}"
        return plan, plan.reason

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
