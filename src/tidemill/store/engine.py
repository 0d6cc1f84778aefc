"""Opens the catalog database: SQLite for one machine, PostgreSQL for several."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry, StaticPool

from tidemill.errors import InvalidInput, Unavailable
from tidemill.store.columns import in_milliseconds
from tidemill.store.faults import translated
from tidemill.store.migrations.runner import migrate
from tidemill.store.transaction import SqlTransaction

BUSY_TIMEOUT: Final = timedelta(seconds=30)
STATEMENT_TIMEOUT: Final = timedelta(seconds=10)
# Frees the locks of a process that was killed or stopped inside a transaction.
IDLE_TRANSACTION_TIMEOUT: Final = timedelta(seconds=30)
CONNECT_TIMEOUT: Final = timedelta(seconds=5)
WAL_RETRY_DELAY: Final = timedelta(milliseconds=20)
POSTGRESQL_DRIVERS: Final = frozenset({"postgresql", "postgresql+psycopg"})
SQLITE_DRIVERS: Final = frozenset({"sqlite", "sqlite+pysqlite"})
MEMORY_NAMES: Final = frozenset({None, "", ":memory:"})


class Turns:
    """Lets the threads of one process into SQLite one by one: its own waiting is by sleeping, and slow."""

    def __init__(self, timeout: timedelta) -> None:
        self._lock = threading.Lock()
        self._timeout = timeout

    @contextmanager
    def turn(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=self._timeout.total_seconds()):
            raise Unavailable(f"The catalog database was busy for {self._timeout.total_seconds():.0f} s")
        try:
            yield
        finally:
            self._lock.release()


class SqlStore:
    """The catalog and the jobs in one SQL database."""

    def __init__(self, engine: Engine, turns: Turns | None = None) -> None:
        self._engine = engine
        self._turns = turns

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        """Commits on leaving, rolls back on an exception. Unavailable on leaving means: outcome unknown."""
        with self._connection() as connection:
            yield SqlTransaction(connection)

    def ping(self) -> None:
        """Raises Unavailable when the database does not answer."""
        with self._connection() as connection:
            connection.exec_driver_sql("SELECT 1")

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        if self._turns is None:
            with translated(), self._engine.begin() as connection:
                yield connection
        else:
            with self._turns.turn(), translated(), self._engine.begin() as connection:
                yield connection


def open_store(url: str) -> SqlStore:
    """The store at `sqlite:///path`, `sqlite://` (in memory) or `postgresql://…`, its schema up to date."""
    engine, turns = _engine(_parsed(url))
    try:
        with translated(), engine.begin() as connection:
            migrate(connection)
    except BaseException:
        engine.dispose()
        raise
    return SqlStore(engine, turns)


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except ArgumentError as error:
        raise InvalidInput("database", "is not a URL such as sqlite:///catalog.db") from error


def _engine(url: URL) -> tuple[Engine, Turns | None]:
    if url.drivername in SQLITE_DRIVERS:
        return _sqlite_engine(url), Turns(BUSY_TIMEOUT)
    if url.drivername in POSTGRESQL_DRIVERS:
        return _postgresql_engine(url), None
    raise InvalidInput("database", f"'{url.drivername}' is not served; use sqlite:///… or postgresql://…")


def _postgresql_engine(url: URL) -> Engine:
    limits = {
        "statement_timeout": in_milliseconds(STATEMENT_TIMEOUT),
        "idle_in_transaction_session_timeout": in_milliseconds(IDLE_TRANSACTION_TIMEOUT),
    }
    return create_engine(
        url.set(drivername="postgresql+psycopg"),
        isolation_level="READ COMMITTED",
        connect_args={
            "options": " ".join(f"-c {name}={value}" for name, value in limits.items()),
            "connect_timeout": int(CONNECT_TIMEOUT.total_seconds()),
        },
        pool_pre_ping=True,
        pool_size=10,
        max_overflow=20,
        pool_timeout=10,
    )


def _sqlite_engine(url: URL) -> Engine:
    if url.database in MEMORY_NAMES:
        engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        engine = create_engine(url)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
    # Python's driver would open transactions by itself, and only before writes.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {in_milliseconds(BUSY_TIMEOUT)}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")
    switch_to_wal(connection)


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def switch_to_wal(connection: sqlite3.Connection) -> None:
    give_up_at = time.monotonic() + BUSY_TIMEOUT.total_seconds()
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            # The busy timeout does not hold for this switch, which processes that start together all try.
            if time.monotonic() > give_up_at:
                raise
            time.sleep(WAL_RETRY_DELAY.total_seconds())
        else:
            return
