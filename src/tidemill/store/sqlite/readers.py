"""Connections to a SQLite file that only read: no reader waits for a writer, or for another reader."""

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
    """Connections stay open between uses; every statement sees the last commit of any process."""

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
    """One block of reading; written out as a class because nearly every request enters one or more."""

    __slots__ = ("_reader", "_readers")

    def __init__(self, readers: SqliteReaders) -> None:
        self._readers = readers

    def __enter__(self) -> SqlTransaction:
        self._reader = self._readers.acquire()
        return self._reader.transaction

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # In what state a connection is after an error of the database is not worth knowing.
        self._readers.release(self._reader, is_reusable=not isinstance(error, DBAPIError))
        if isinstance(error, DBAPIError):
            with translated():
                raise error


class _Reader:
    """One connection with its repositories made once: they cost more than most reads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.transaction = SqlTransaction(connection)

    def reset(self) -> None:
        """Each statement was a transaction of its own; SQLAlchemy has to be told that they are over."""
        if self._connection.in_transaction():
            self._connection.rollback()

    def close(self) -> None:
        self._connection.close()
