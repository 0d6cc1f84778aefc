"""Columns that fill themselves: looks which of them have fallen behind and submits their jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias
from uuid import UUID

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.errors import ColumnNotComputed, JobAlreadyActive
from tidemill.jobs.model.derived import ComputedColumn
from tidemill.jobs.model.jobs import BackfillRequest, Job, JobFilter
from tidemill.jobs.planning.assess import Assessor
from tidemill.jobs.planning.backfill import plan_backfill
from tidemill.jobs.ports import JobStore

# Handed in by whoever wires both: jobs are submitted by the service, and the worker does not know it.
Submit: TypeAlias = Callable[[Caller, TableIdent, BackfillRequest, str | None], Job]


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
        submit: Submit,
        caller: Caller,
        policy: AutoBackfillPolicy,
    ) -> None:
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
        request = BackfillRequest(column.name)
        try:
            declared = self._assessor.get_column(table, column.name)
            known = column.column_id, column.function_digest
            if self._idle.get(known) == self._assessor.latest_version(table):
                return None
            progress = self._assessor.column_progress(declared, request)
            if plan_backfill(progress, request, slots=1).rows < self._policy.rows:
                self._idle[known] = progress.snapshot.version
                return None
            # A job that failed is not tried again before the table or the function has changed.
            key = f"auto/{column.column_id}/{column.function_digest}/{progress.snapshot.version}"
            return self._submit(self._caller, table.ident, request, key)
        except (ColumnNotComputed, JobAlreadyActive, TableColumnNotFound):
            return None

    def _is_rested(self, column: ComputedColumn) -> bool:
        with self._store.transaction() as tx:
            last = tx.jobs.list_recent(None, 1, JobFilter(subject_id=column.column_id))
            if not last:
                return True
            ended_at = last[0].finished_at
            return ended_at is not None and tx.now() - ended_at >= self._policy.cooldown
