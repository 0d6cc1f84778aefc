"""How the threads of one process write to SQLite: one at a time, over a single connection.

SQLite allows one writer per database and makes others poll with growing sleeps. So threads of this process
queue at an in-process lock first (`WriteLock`), and only the one that holds it competes with other processes.
The connection and its repositories stay open between transactions, because creating them costs more than a
commit.

In non-blocking mode (see `tidemill.catalog.nonblocking`) neither wait is allowed: if the lock or the database
is busy, `begin` raises WouldBlock and the caller repeats the request in a thread.

After any error the connection is discarded: SQLAlchemy's idea of its state may differ from SQLite's, and the
next transaction could commit the leftovers of this one.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from tidemill.catalog.nonblocking import WouldBlock, is_nonblocking
from tidemill.errors import Unavailable
from tidemill.store.driver_errors import as_database_error, committing, is_busy, translated
from tidemill.store.unit_of_work import SqlTransaction


class WriteLock:
    """Admits one thread of this process at a time; faster than SQLite's own wait, which sleeps."""

    def __init__(self, timeout: timedelta) -> None:
        self._lock = threading.Lock()
        self._timeout = timeout

    @contextmanager
    def held(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> None:
        if is_nonblocking():
            if not self._lock.acquire(blocking=False):
                raise WouldBlock
        elif not self._lock.acquire(timeout=self._timeout.total_seconds()):
            raise Unavailable(f"The catalog database was busy for {self._timeout.total_seconds():.0f} s")

    def release(self) -> None:
        self._lock.release()


class SqliteWriter:
    """Runs write transactions on a connection that it keeps, with its repositories, between them."""

    def __init__(self, engine: Engine, write_lock: WriteLock) -> None:
        self._engine = engine
        self._write_lock = write_lock
        self._cached: tuple[Connection, SqlTransaction] | None = None

    def transaction(self) -> WriterLease:
        return WriterLease(self)

    def begin(self) -> SqlTransaction:
        self._write_lock.acquire()
        try:
            with translated():
                connection, transaction = self._cached or self._connect()
                if is_nonblocking():
                    _begin_without_waiting(connection)
                connection.begin()
                return transaction
        except WouldBlock:
            self._write_lock.release()
            raise
        except BaseException:
            self._discard()
            self._write_lock.release()
            raise

    def end(self, error: BaseException | None) -> None:
        """Commits, or rolls back after an error. Raises CommitStateUnknown."""
        assert self._cached is not None
        connection, _ = self._cached
        try:
            with translated():
                if error is None:
                    _commit(connection)
                else:
                    connection.rollback()
                if isinstance(error, DBAPIError):
                    raise error
        except BaseException:
            self._discard()
            raise
        finally:
            self._write_lock.release()

    def close(self) -> None:
        with self._write_lock.held():
            self._discard()

    def _connect(self) -> tuple[Connection, SqlTransaction]:
        connection = self._engine.connect()
        self._cached = connection, SqlTransaction(connection)
        return self._cached

    def _discard(self) -> None:
        cached, self._cached = self._cached, None
        if cached is not None:
            cached[0].close()


def _commit(connection: Connection) -> None:
    try:
        with committing():
            connection.commit()
    except BaseException:
        # SQLAlchemy thinks the transaction ended, but after SQLITE_BUSY it is open: the next would commit it.
        try:
            connection.connection.rollback()
        except sqlite3.Error:
            connection.invalidate()
        raise


def _begin_without_waiting(connection: Connection) -> None:
    """Begins, or raises WouldBlock if another process is writing. SQLAlchemy then joins this transaction."""
    try:
        connection.connection.cursor().execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        if is_busy(error):
            raise WouldBlock from error
        raise as_database_error(error, connection.dialect) from error


class WriterLease:
    """The context manager of one transaction."""

    __slots__ = ("_writer",)

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    def __enter__(self) -> SqlTransaction:
        return self._writer.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.end(error)
