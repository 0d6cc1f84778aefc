"""Whether owners may still do what their views and computed columns need.

Reading a view needs `read` on the view alone. Its rows are made with the rights of its owner, who must be
allowed to read the sources and to use the functions each time: a grant that is withdrawn stops the flow. It
is the same for a computed column with a function of another namespace. What belongs to the deployment (see
`is_deployment`) may do everything.

Functions that are registered in the namespace of the table or view are its own, whoever has declared them.
"""

from __future__ import annotations

from uuid import UUID

from tidemill.catalog.model.callers import Caller, Permission, is_deployment
from tidemill.catalog.model.functions import FunctionKey, function_ident
from tidemill.catalog.model.identifiers import NamespacePath, Securable, TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.catalog.operations.visibility import can
from tidemill.catalog.ports import Authorizer
from tidemill.jobs.errors import OwnerRefused
from tidemill.jobs.model.columns import ComputedColumn, subject_of
from tidemill.jobs.model.jobs import Job
from tidemill.jobs.model.options import BackfillRequest, PreviewRequest, RefreshRequest, VerifyRequest
from tidemill.jobs.model.views import MaterializedView
from tidemill.jobs.ports import JobStore, JobTransaction


class OwnerRights:
    def __init__(self, store: JobStore, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    def check_job(self, job: Job) -> None:
        """Raises OwnerRefused. A job whose column cannot be told apart needs the rights for all of them."""
        match job.request:
            case RefreshRequest() | VerifyRequest():
                self.check_view(job.table_id)
            case BackfillRequest() | PreviewRequest() as request:
                with self._store.reading() as tx:
                    columns = tx.derived.list_columns(job.table_id)
                found = [column for column in columns if _is_for(job, request, column)]
                for column in found or columns:
                    self.check_column(column)
            case _:
                pass

    def check_view(self, view_id: UUID) -> None:
        """Raises OwnerRefused. One that is gone is for others to notice."""
        with self._store.reading() as tx:
            view, table = tx.derived.find_view(view_id), tx.tables.find_by_id(view_id)
            if view is not None and table is not None:
                self._check_view(tx, table, view)

    def check_column(self, column: ComputedColumn) -> None:
        """Raises OwnerRefused."""
        with self._store.reading() as tx:
            table = tx.tables.find_by_id(column.table_id)
            if table is None or is_deployment(column.owner):
                return
            what = f"column '{column.name}' of {table.ident}"
            self._check_function(tx, what, column.owner, table.ident, column.function_key)

    def require_use(self, caller: Caller, key: FunctionKey) -> None:
        """For who declares a column with a function that is registered already: raises PermissionDenied."""
        with self._store.reading() as tx:
            namespace = tx.functions.namespace_of(key) or NamespacePath()
            ident = function_ident(namespace, tx.functions.get(key).name)
        self._authorizer.require(caller, Permission.READ, ident)

    def _check_view(self, tx: JobTransaction, table: Table, view: MaterializedView) -> None:
        if is_deployment(view.owner):
            return
        what = f"view {table.ident}"
        for source in view.sources:
            found = tx.tables.find_by_id(source.table_id)
            if found is not None:
                self._check(what, view.owner, found.ident)
        for key in view.function_keys:
            self._check_function(tx, what, view.owner, table.ident, key)

    def _check_function(
        self, tx: JobTransaction, what: str, owner: Caller | None, home: TableIdent, key: FunctionKey
    ) -> None:
        namespace = tx.functions.namespace_of(key)
        if namespace == home.namespace:
            return
        name = tx.functions.get(key).name
        if namespace is None:
            raise OwnerRefused(
                what, f"uses the function {name} of a namespace that was dropped; declare it with another"
            )
        self._check(what, owner, function_ident(namespace, name))

    def _check(self, what: str, owner: Caller | None, resource: Securable) -> None:
        assert owner is not None
        if not can(self._authorizer, owner, Permission.READ, resource):
            raise OwnerRefused(
                what,
                f"is made with the rights of its owner '{owner.principal}', who lacks the permission 'read' "
                f"on {resource}; grant it, or have an administrator change the owner",
            )


def _is_for(job: Job, request: BackfillRequest | PreviewRequest, column: ComputedColumn) -> bool:
    """A preview is a subject of its own, so its column is known by name only."""
    if isinstance(request, PreviewRequest):
        return request.column in column.names
    return job.subject_id == subject_of(column.column_id, request.branch or MAIN_BRANCH)
