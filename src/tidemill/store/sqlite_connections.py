"""Connections to a SQLite file: one writer per process, and a pool of read-only connections.

SQLite allows one writer per database and makes others poll with growing sleeps. So threads of this process
queue at an in-process lock first (`WriteLock`), and only the one that holds it competes with other processes.
The connection and its repositories stay open between transactions, because creating them costs more than a
commit.

In non-blocking mode (see `tidemill.catalog.nonblocking`) neither wait is allowed: if the lock or the database
is busy, `begin` raises WouldBlock and the caller repeats the request in a thread.

After any error the connection is discarded: SQLAlchemy's idea of its state may differ from SQLite's, and the
next transaction could commit the leftovers of this one.

In WAL mode readers never wait for a writer or for each other, provided they do not share a connection. Nearly
every request reads, so connections and the repositories on them are kept open between uses: creating them
costs more than most queries. Connections run in autocommit mode with `query_only`, so every statement sees
the last commit of any process and a stray write fails.

A connection to a file that was removed or replaced goes on in the file that nobody else sees any more, and
what it commits is lost. So every lease compares the file with the one that its connection opened.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Final, TypeAlias

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from tidemill.catalog.nonblocking import WouldBlock, is_nonblocking
from tidemill.errors import DatabaseDamaged, Unavailable
from tidemill.store.audit import Recorded, Recording
from tidemill.store.column_types import in_milliseconds
from tidemill.store.driver_errors import as_database_error, committing, is_busy, translated
from tidemill.store.unit_of_work import SqlTransaction

MAX_IDLE: Final = 64
FileIdentity: TypeAlias = tuple[int, int] | None


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


class DatabaseFile:
    """The file of a database, or the memory of this process."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        # Set by whoever finds damage; cleared by a check of the whole file.
        self.damage: DatabaseDamaged | None = None

    def identity(self) -> FileIdentity:
        """Identifies the current file. Raises Unavailable if it is missing, which SQLite would hide."""
        if self.path is None:
            return None
        try:
            status = os.stat(self.path)
        except OSError as error:
            reason = error.strerror
            raise Unavailable(f"The catalog database {self.path} cannot be opened: {reason}") from error
        return status.st_dev, status.st_ino

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Translates errors as `translated` does, and remembers damage."""
        try:
            with translated():
                yield
        except DatabaseDamaged as error:
            self.damage = error
            raise


class SqliteWriter:
    """Runs write transactions on a connection that it keeps, with its repositories, between them."""

    def __init__(
        self, engine: Engine, write_lock: WriteLock, file: DatabaseFile, recording: Recording
    ) -> None:
        self._engine = engine
        self._write_lock = write_lock
        self._file = file
        self._recording = recording
        self._opened: FileIdentity = None
        self._cached: tuple[Connection, SqlTransaction] | None = None
        self._changes_before = 0

    def transaction(self) -> WriterLease:
        return WriterLease(self)

    def begin(self) -> SqlTransaction:
        self._write_lock.acquire()
        try:
            with self._file.watched():
                identity = self._file.identity()
                if identity != self._opened:
                    self._discard()
                    # The pool may hold a connection to the former file.
                    self._engine.dispose()
                connection, transaction = self._cached or self._connect()
                self._opened = identity
                if is_nonblocking():
                    _begin_without_waiting(connection)
                connection.begin()
                self._changes_before = changes_of(connection)
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
        recorded: Recorded | None = None
        try:
            with self._file.watched():
                if error is None:
                    has_changed = changes_of(connection) != self._changes_before
                    recorded = self._recording.before_commit(connection, has_changed=has_changed)
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
        self._recording.committed(recorded)

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


def changes_of(connection: Connection) -> int:
    """The number of rows that the connection has changed since it was opened, on PostgreSQL as well."""
    changes: int = connection.connection.total_changes
    return changes


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


class SqliteReaders:
    """Hands out read-only connections and keeps up to MAX_IDLE of them open."""

    def __init__(self, url: URL, busy_timeout: timedelta, file: DatabaseFile) -> None:
        self.file = file
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
        identity = self.file.identity()
        while self._idle:
            try:
                reader = self._idle.pop()
            except IndexError:
                break
            if reader.opened == identity:
                return reader
            reader.close()
        with self.file.watched():
            return _Reader(self._engine.connect(), identity)

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
            with self._readers.file.watched():
                raise error


class _Reader:
    """One connection together with its repositories."""

    def __init__(self, connection: Connection, opened: FileIdentity) -> None:
        self.opened = opened
        self._connection = connection
        self.transaction = SqlTransaction(connection)

    def reset(self) -> None:
        """Ends the transaction that SQLAlchemy believes is open; in SQLite each statement was its own."""
        if self._connection.in_transaction():
            self._connection.rollback()

    def close(self) -> None:
        self._connection.close()
