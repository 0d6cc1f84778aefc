"""Heartbeats of workers, as rows."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidemill.store.column_types import DatabaseTime
from tidemill.store.schema import workers


class SqlWorkerRegistry:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def beat(self, owner: str) -> None:
        heartbeat = update(workers).where(workers.c.owner == owner).values(last_seen_at=DatabaseTime())
        if self._connection.execute(heartbeat).rowcount:
            return
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(workers).values(owner=owner, last_seen_at=DatabaseTime()))
        except IntegrityError:
            # Two first heartbeats arrived at once; either will do.
            return

    def last_seen_at(self) -> datetime | None:
        seen: datetime | None = self._connection.scalar(select(func.max(workers.c.last_seen_at)))
        return seen
