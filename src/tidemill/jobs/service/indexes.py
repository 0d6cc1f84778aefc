"""Indexes of tables: asked for, looked at and dropped by callers; a job builds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidemill.catalog.errors import TableIndexNotFound
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent, check_name
from tidemill.catalog.model.tables import Table
from tidemill.catalog.ports import Authorizer
from tidemill.jobs.errors import InvalidJobTransition
from tidemill.jobs.model.indexes import PENDING, IndexDefinition, IndexStatistics, TableIndex
from tidemill.jobs.model.jobs import Job
from tidemill.jobs.model.options import IndexRequest
from tidemill.jobs.ports import JobStore
from tidemill.jobs.service.submissions import JobOperations
from tidemill.jobs.table_ports import TableIndexes, TableVersions


class IndexOperations:
    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        versions: TableVersions,
        indexes: TableIndexes,
        jobs: JobOperations,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._versions = versions
        self._indexes = indexes
        self._jobs = jobs

    def create(
        self,
        caller: Caller,
        ident: TableIdent,
        branch: str,
        definition: IndexDefinition,
        idempotency_key: str | None,
    ) -> Job:
        """Checks all that can be known before, and leaves the building to a job."""
        self._authorizer.require(caller, Permission.WRITE, ident)
        check_name(definition.name, "name")
        table = self._readable(ident, branch)
        # A request that is repeated with its key may find the index that it made itself.
        is_new = idempotency_key is None or not self._is_known(caller, idempotency_key)
        checked = self._indexes.check(
            table, definition if is_new else replace(definition, is_replacement=True)
        )
        request = IndexRequest(
            branch=table.branch,
            name=checked.name,
            column=checked.column,
            index_type=checked.index_type.value,
            parameters=dict(checked.parameters),
            is_replacement=definition.is_replacement,
        )
        return self._jobs.submit_index(caller, table, request, idempotency_key)

    def list_all(
        self, caller: Caller, ident: TableIdent, branch: str, version: int | None
    ) -> Sequence[TableIndex]:
        """Sorted by name; those still being built are only part of the newest version."""
        self._authorizer.require(caller, Permission.READ, ident)
        table = self._readable(ident, branch)
        # Before the data: a build that ends between the two looks is then seen twice and not never.
        pending = [] if version is not None else self._pending(table)
        built = self._indexes.list_all(table, self._number(table, version))
        names = {index.name for index in built}
        waiting = [_pending_index(job, request) for job, request in pending if request.name not in names]
        return sorted([*built, *waiting], key=lambda index: index.name)

    def statistics(
        self, caller: Caller, ident: TableIdent, branch: str, name: str, version: int | None
    ) -> IndexStatistics:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self._readable(ident, branch)
        pending = [] if version is not None else self._pending(table)
        try:
            return self._indexes.statistics(table, self._number(table, version), name)
        except TableIndexNotFound:
            for _, request in pending:
                if request.name == name:
                    return IndexStatistics(request.index_type, 0, self._indexes.count_rows(table), 0)
            raise

    def drop(self, caller: Caller, ident: TableIdent, branch: str, name: str) -> int | None:
        """The version without it; None when it was not there yet, and will not be."""
        self._authorizer.require(caller, Permission.WRITE, ident)
        table = self._readable(ident, branch)
        is_stopped = self._stop_building(caller, table, name)
        try:
            return self._indexes.drop(table, name)
        except TableIndexNotFound:
            if not is_stopped:
                raise
            return None

    def prewarm(self, caller: Caller, ident: TableIdent, branch: str, name: str) -> None:
        """Loads the index where queries are answered."""
        self._authorizer.require(caller, Permission.READ, ident)
        self._indexes.prewarm(self._readable(ident, branch), name)

    def _stop_building(self, caller: Caller, table: Table, name: str) -> bool:
        is_stopped = False
        for job, request in self._pending(table):
            if request.name == name:
                try:
                    with self._store.transaction() as tx:
                        tx.jobs.request_cancel(job.job_id)
                        tx.events.append(job.job_id, "cancel_requested", {"by": caller.principal})
                    is_stopped = True
                except InvalidJobTransition:
                    # It came to its end just now: there may be an index to drop.
                    continue
        return is_stopped

    def _pending(self, table: Table) -> Sequence[tuple[Job, IndexRequest]]:
        with self._store.transaction() as tx:
            active = tx.jobs.list_active(table.table_id)
        return [
            (job, job.request)
            for job in active
            if isinstance(job.request, IndexRequest)
            and job.request.branch == table.branch
            and job.cancel_requested_at is None
        ]

    def _is_known(self, caller: Caller, idempotency_key: str) -> bool:
        with self._store.transaction() as tx:
            return tx.jobs.find_by_key(caller.principal, idempotency_key) is not None

    def _readable(self, ident: TableIdent, branch: str) -> Table:
        table = self._versions.get_branch(ident, branch)
        self._versions.get_latest(table)
        return table

    def _number(self, table: Table, version: int | None) -> int:
        found = self._versions.get_latest(table) if version is None else self._versions.get(table, version)
        return found.version


def _pending_index(job: Job, request: IndexRequest) -> TableIndex:
    """Until there is one of its own, an index is known by its job."""
    return TableIndex(
        name=request.name,
        uuid=job.job_id,
        columns=(request.column,),
        index_type=request.index_type,
        status=PENDING,
    )
