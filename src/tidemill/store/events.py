"""Job events as rows."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, insert, select

from tidemill.jobs.model.jobs import JobEvent
from tidemill.store.column_types import DatabaseTime
from tidemill.store.job_counters import next_number
from tidemill.store.schema import job_events, jobs


class SqlJobEvents:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(self, job_id: str, kind: str, data: dict[str, object]) -> None:
        sequence = next_number(self._connection, job_id, jobs.c.event_count)
        self._connection.execute(
            insert(job_events).values(
                job_id=job_id, sequence=sequence, at=DatabaseTime(), kind=kind, data=data
            )
        )

    def list_after(self, job_id: str, sequence: int) -> Sequence[JobEvent]:
        query = (
            select(job_events)
            .where(job_events.c.job_id == job_id, job_events.c.sequence > sequence)
            .order_by(job_events.c.sequence)
        )
        return [
            JobEvent(row.job_id, row.sequence, row.at, row.kind, row.data)
            for row in self._connection.execute(query)
        ]
