"""Opens the catalog database: SQLite for one machine, PostgreSQL for several.

`SqlStore` hides three setups. PostgreSQL uses SQLAlchemy's connection pool for reading and writing. A SQLite
file has one writer connection per process and a pool of read-only connections (see `sqlite_connections`).
SQLite in memory has a single connection, which readers and writers share under the write lock.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, Final

import structlog
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry, StaticPool

from tidemill.catalog.auditing import acting
from tidemill.catalog.model.audit import AuditEvent
from tidemill.catalog.nonblocking import WouldBlock, may_block, nonblocking
from tidemill.catalog.ports import Cipher
from tidemill.errors import InvalidInput, Unavailable
from tidemill.store.audit import AuditOutput, Recording
from tidemill.store.column_types import in_milliseconds
from tidemill.store.driver_errors import as_database_error, committing, is_busy, translated
from tidemill.store.migrations.m0013_sealed_variables import CIPHER, HAS_SEALED
from tidemill.store.migrations.runner import migrate
from tidemill.store.postgresql_connections import connect as connect_counting
from tidemill.store.sqlite_connections import DatabaseFile, SqliteReaders, SqliteWriter, WriteLock, changes_of
from tidemill.store.unit_of_work import SqlTransaction

BUSY_TIMEOUT: Final = timedelta(seconds=30)
BUSY_DELAY: Final = timedelta(microseconds=200)
STATEMENT_TIMEOUT: Final = timedelta(seconds=10)
# Releases the locks of a process that was killed or suspended inside a transaction.
IDLE_TRANSACTION_TIMEOUT: Final = timedelta(seconds=30)
CONNECT_TIMEOUT: Final = timedelta(seconds=5)
WAL_RETRY_DELAY: Final = timedelta(milliseconds=20)
POSTGRESQL_DRIVERS: Final = frozenset({"postgresql", "postgresql+psycopg"})
SQLITE_DRIVERS: Final = frozenset({"sqlite", "sqlite+pysqlite"})
MEMORY_NAMES: Final = frozenset({None, "", ":memory:"})
log = structlog.get_logger("tidemill.store")

_NO_OPTIONS: Final[Mapping[str, Any]] = {}
_READ_ONLY: Final[Mapping[str, Any]] = {"postgresql_readonly": True}
_ALL_OUTPUT: Final = AuditOutput()


class SqlStore:
    """The catalog and the jobs in one SQL database."""

    def __init__(
        self,
        engine: Engine,
        write_lock: WriteLock | None = None,
        readers: SqliteReaders | None = None,
        audit: AuditOutput = _ALL_OUTPUT,
    ) -> None:
        self._engine = engine
        self._write_lock = write_lock
        self._file = DatabaseFile(None) if readers is None else readers.file
        self._recording = Recording(audit)
        self._writer = (
            None if write_lock is None else SqliteWriter(engine, write_lock, self._file, self._recording)
        )
        self._readers = readers

    @property
    def is_local(self) -> bool:
        """Whether reads only wait for the local disk."""
        return self._readers is not None

    @property
    def is_shared(self) -> bool:
        """Whether other processes can open the database; one in memory belongs to a single process."""
        return self._write_lock is None or self._readers is not None

    def transaction(self) -> AbstractContextManager[SqlTransaction]:
        """Commits on exit, rolls back on an exception.

        Raises Unavailable if nothing was committed, CommitStateUnknown if the outcome is unknown.
        """
        if self._writer is not None:
            return self._writer.transaction()
        may_block()
        return self._read_write()

    def reading(self) -> AbstractContextManager[SqlTransaction]:
        """Read-only: each statement sees everything committed before it and waits for no writer."""
        return self._read_only() if self._readers is None else self._readers.reader()

    @property
    def path(self) -> str | None:
        """The file of the database, if it is one."""
        return self._file.path

    def check_readable(self) -> None:
        """Raises Unavailable if the database does not respond, or if a table of it cannot be read."""
        with self.reading() as tx:
            tx.touch_tables()
        if self._file.damage is not None:
            # Somebody came upon damage that may be anywhere in the file.
            with self.reading() as tx:
                is_sound = tx.is_sound()
            if not is_sound:
                raise self._file.damage
            self._file.damage = None

    def check_writable(self) -> None:
        """Raises Unavailable if the database cannot be written to; writes nothing."""
        try:
            with nonblocking() if self._writer is not None else nullcontext(), self.transaction() as tx:
                is_read_only = tx.is_read_only()
        except WouldBlock:
            # Somebody else is writing.
            return
        if is_read_only:
            raise Unavailable(
                "The catalog database is read-only: it is a standby, or its default is read-only"
            )

    def record_audit(self, events: Sequence[AuditEvent]) -> None:
        """Adds events that are not part of a transaction, or the outcome of known ones."""
        with acting(None), self.transaction() as tx:
            self._recording.put(tx.audit, events)
        self._recording.write_lines(events)

    def close(self) -> None:
        if self._readers is not None:
            self._readers.close()
        if self._writer is not None:
            self._writer.close()
        self._engine.dispose()

    @contextmanager
    def _read_write(self) -> Iterator[SqlTransaction]:
        with self._connection() as connection:
            before = changes_of(connection)
            yield SqlTransaction(connection)
            has_changed = changes_of(connection) != before
            recorded = self._recording.before_commit(connection, has_changed=has_changed)
            with committing():
                connection.commit()
        self._recording.committed(recorded)

    @contextmanager
    def _read_only(self) -> Iterator[SqlTransaction]:
        may_block()
        with self._connection(_READ_ONLY) as connection, _query_only(connection):
            yield SqlTransaction(connection)

    @contextmanager
    def _connection(self, options: Mapping[str, Any] = _NO_OPTIONS) -> Iterator[Connection]:
        lock = nullcontext() if self._write_lock is None else self._write_lock.held()
        with (
            lock,
            translated(),
            self._engine.connect().execution_options(**options) as connection,
            connection.begin(),
        ):
            yield connection


@contextmanager
def _query_only(connection: Connection) -> Iterator[None]:
    """Makes the one connection of an in-memory database read-only; PostgreSQL already knows from BEGIN."""
    if connection.dialect.name != "sqlite":
        yield
        return
    connection.exec_driver_sql("PRAGMA query_only = ON")
    try:
        yield
    finally:
        connection.exec_driver_sql("PRAGMA query_only = OFF")


def open_store(url: str, cipher: Cipher | None = None, audit: AuditOutput = _ALL_OUTPUT) -> SqlStore:
    """Opens `sqlite:///path`, `sqlite://` (in memory) or `postgresql://…` and migrates its schema.

    Without the installation's cipher, a database with variables that are not sealed yet is not migrated.
    """
    parsed_url = _parse_url(url)
    engine, write_lock = _engine(parsed_url)
    try:
        with translated(), engine.begin() as connection:
            connection.info[CIPHER] = cipher
            migrate(connection)
            has_sealed = connection.info.pop(HAS_SEALED, False)
        if has_sealed:
            _forget_clear_text(engine)
    except BaseException:
        engine.dispose()
        raise
    return SqlStore(engine, write_lock, _readers(parsed_url), audit)


def _forget_clear_text(engine: Engine) -> None:
    """Rewrites a database of SQLite, so that free pages and the log hold nothing from before.

    PostgreSQL does that when it vacuums.
    """
    if engine.dialect.name != "sqlite":
        return
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.OperationalError as error:
        log.warning("free pages of the database may hold variables from before: VACUUM it", error=str(error))
    finally:
        raw.close()


def _parse_url(url: str) -> URL:
    try:
        return make_url(url)
    except ArgumentError as error:
        raise InvalidInput("database", "is not a URL such as sqlite:///catalog.db") from error


def _engine(url: URL) -> tuple[Engine, WriteLock | None]:
    if url.drivername in SQLITE_DRIVERS:
        return _sqlite_engine(url), WriteLock(BUSY_TIMEOUT)
    if url.drivername in POSTGRESQL_DRIVERS:
        return _postgresql_engine(url), None
    raise InvalidInput("database", f"'{url.drivername}' is not supported; use sqlite:///… or postgresql://…")


def _readers(url: URL) -> SqliteReaders | None:
    if url.drivername in SQLITE_DRIVERS and url.database not in MEMORY_NAMES:
        return SqliteReaders(url, BUSY_TIMEOUT, DatabaseFile(url.database))
    return None


def _postgresql_engine(url: URL) -> Engine:
    session_settings = {
        "statement_timeout": in_milliseconds(STATEMENT_TIMEOUT),
        "idle_in_transaction_session_timeout": in_milliseconds(IDLE_TRANSACTION_TIMEOUT),
    }
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        isolation_level="READ COMMITTED",
        connect_args={
            "options": " ".join(f"-c {name}={value}" for name, value in session_settings.items()),
            "connect_timeout": int(CONNECT_TIMEOUT.total_seconds()),
        },
        pool_pre_ping=True,
        pool_size=10,
        max_overflow=20,
        pool_timeout=10,
    )
    event.listen(engine, "do_connect", connect_counting)
    return engine


def _sqlite_engine(url: URL) -> Engine:
    if url.database in MEMORY_NAMES:
        engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        engine = create_engine(url, connect_args={"check_same_thread": False})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
    # Otherwise Python's driver opens transactions implicitly, and only before writes.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {in_milliseconds(BUSY_TIMEOUT)}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")
    switch_to_wal(connection)
    # From here on a transaction waits only in _begin_sqlite.
    connection.execute("PRAGMA busy_timeout = 0")


def _begin_sqlite(connection: Connection) -> None:
    """Polls until other processes have finished writing: SQLite's own wait sleeps ever longer."""
    if getattr(connection.connection, "in_transaction", False):
        return
    cursor = connection.connection.cursor()
    deadline = time.monotonic() + BUSY_TIMEOUT.total_seconds()
    while True:
        try:
            cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise as_database_error(error, connection.dialect) from error
            time.sleep(BUSY_DELAY.total_seconds())
        else:
            return


def switch_to_wal(connection: sqlite3.Connection) -> None:
    deadline = time.monotonic() + BUSY_TIMEOUT.total_seconds()
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            # The busy timeout does not apply to this switch, which processes starting together all attempt.
            if time.monotonic() > deadline:
                raise
            time.sleep(WAL_RETRY_DELAY.total_seconds())
        else:
            return
