"""Connections to PostgreSQL that count the rows they change, as those to SQLite do.

The audit asks whether a transaction has changed anything. That it has an id does not tell: a row lock gives
it one as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Self

from psycopg import Connection, Cursor
from psycopg.abc import Params
from sqlalchemy import Dialect
from sqlalchemy.pool import ConnectionPoolEntry

# What the server reports for statements whose rows are read.
READING: Final = ("SELECT", "SHOW")


class CountingConnection(Connection[Any]):
    """`total_changes` is the number of rows changed since the connection was opened."""

    total_changes = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cursor_factory = _CountingCursor


class _CountingCursor(Cursor[Any]):
    def execute(self, query: Any, params: Params | None = None, **options: Any) -> Self:
        super().execute(query, params, **options)
        self._count()
        return self

    def executemany(self, query: Any, params_seq: Iterable[Params], **options: Any) -> None:
        super().executemany(query, params_seq, **options)
        self._count()

    def _count(self) -> None:
        status = self.statusmessage
        if (
            status is not None
            and not status.startswith(READING)
            and isinstance(self.connection, CountingConnection)
        ):
            self.connection.total_changes += max(self.rowcount, 0)


def connect(
    dialect: Dialect, entry: ConnectionPoolEntry, arguments: list[Any], options: dict[str, Any]
) -> CountingConnection:
    """For SQLAlchemy's event `do_connect`."""
    return CountingConnection.connect(*arguments, **options)
