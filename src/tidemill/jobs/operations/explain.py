"""What a job would do and why, before anything is done."""

from __future__ import annotations

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Table
from tidemill.catalog.ports import Authorizer
from tidemill.jobs.model.jobs import BackfillRequest, RefreshRequest
from tidemill.jobs.model.plans import BackfillPlan, RefreshPlan
from tidemill.jobs.operations.assess import Assessor
from tidemill.jobs.planner.backfill import plan_backfill
from tidemill.jobs.planner.refresh import plan_refresh
from tidemill.jobs.ports import JobStore


class Explainer:
    def __init__(self, store: JobStore, authorizer: Authorizer, assessor: Assessor) -> None:
        self._store = store
        self._authorizer = authorizer
        self._assessor = assessor

    def backfill(self, caller: Caller, ident: TableIdent, request: BackfillRequest) -> BackfillPlan:
        declared = self._assessor.get_column(self._table(caller, ident), request.column)
        return plan_backfill(self._assessor.column_progress(declared, request), request)

    def refresh(self, caller: Caller, ident: TableIdent, request: RefreshRequest) -> RefreshPlan:
        declared = self._assessor.get_view(self._table(caller, ident))
        progress = self._assessor.view_progress(declared, request.source_version)
        return plan_refresh(progress, is_full=request.is_full)

    def _table(self, caller: Caller, ident: TableIdent) -> Table:
        self._authorizer.require(caller, Permission.READ, ident)
        with self._store.transaction() as tx:
            return tx.tables.get(ident)
