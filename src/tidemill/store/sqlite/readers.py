"""A pool of read-only connections to a SQLite file.

In WAL mode readers never wait for a writer or for each other, provided they do not share a connection. Nearly
every request reads, so connections and the repositories on them are kept open between uses: creating them
costs more than most queries. Connections run in autocommit mode with `query_only`, so every statement sees
the last commit of any process and a stray write fails.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from datetime import timedelta
from types import TracebackType
from typing import Final

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from tidemill.store.column_types import in_milliseconds
from tidemill.store.driver_errors import translated
from tidemill.store.unit_of_work import SqlTransaction

MAX_IDLE: Final = 64


class SqliteReaders:
    """Hands out read-only connections and keeps up to MAX_IDLE of them open."""

    def __init__(self, url: URL, busy_timeout: timedelta) -> None:
        self._busy_timeout = busy_timeout
        self._engine = create_engine(url, poolclass=NullPool, connect_args={"check_same_thread": False})
        self._idle: deque[_Reader] = deque()
        event.listen(self._engine, "connect", self._configure)

    def reader(self) -> ReaderLease:
        return ReaderLease(self)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
        self._engine.dispose()

    def acquire(self) -> _Reader:
        try:
            return self._idle.pop()
        except IndexError:
            pass
        with translated():
            return _Reader(self._engine.connect())

    def release(self, reader: _Reader, *, is_reusable: bool) -> None:
        if is_reusable and len(self._idle) < MAX_IDLE:
            reader.reset()
            self._idle.append(reader)
        else:
            reader.close()

    def _configure(self, connection: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {in_milliseconds(self._busy_timeout)}")
        connection.execute("PRAGMA query_only = ON")


class ReaderLease:
    """The context manager of one read block; a class, because nearly every request enters one."""

    __slots__ = ("_reader", "_readers")

    def __init__(self, readers: SqliteReaders) -> None:
        self._readers = readers

    def __enter__(self) -> SqlTransaction:
        self._reader = self._readers.acquire()
        return self._reader.transaction

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After a database error the state of the connection is uncertain, so it is closed.
        self._readers.release(self._reader, is_reusable=not isinstance(error, DBAPIError))
        if isinstance(error, DBAPIError):
            with translated():
                raise error


class _Reader:
    """One connection together with its repositories."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.transaction = SqlTransaction(connection)

    def reset(self) -> None:
        """Ends the transaction that SQLAlchemy believes is open; in SQLite each statement was its own."""
        if self._connection.in_transaction():
            self._connection.rollback()

    def close(self) -> None:
        self._connection.close()
