"""Translates errors of the database drivers into Tidemill errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from sqlalchemy import Connection, Dialect
from sqlalchemy.exc import (
    DatabaseError,
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from tidemill.errors import (
    CommitStateUnknown,
    DatabaseDamaged,
    Deadlock,
    InvalidInput,
    StorageFull,
    Unavailable,
)

# PostgreSQL's SQLSTATE and SQLite's result code.
FOREIGN_KEY_VIOLATIONS: Final = frozenset({"23503", "SQLITE_CONSTRAINT_FOREIGNKEY"})
# SQLite raises the same class for "busy" and for "no such column"; the latter is a bug in our SQL.
PROGRAMMING_ERRORS: Final = frozenset({"SQLITE_ERROR"})
BUSY_CODES: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# PostgreSQL's deadlock_detected and serialization_failure: the transaction was rolled back.
DEADLOCKS: Final = frozenset({"40P01", "40001"})
# A damaged file, or data_corrupted and index_corrupted; the latter two are InternalErrors of psycopg's.
DAMAGE: Final = frozenset({"SQLITE_NOTADB", "SQLITE_CORRUPT", "XX001", "XX002"})
# read_only_sql_transaction: a standby, or default_transaction_read_only.
READ_ONLY: Final = frozenset({"SQLITE_READONLY", "25006"})
DISK_FULL: Final = frozenset({"SQLITE_FULL", "53100"})


@contextmanager
def translated() -> Iterator[None]:
    """Raises Unavailable without a response, Deadlock, and InvalidInput for values no column can hold."""
    try:
        yield
    except PoolTimeout as error:
        raise Unavailable(f"No connection to the catalog database became free: {error}") from error
    except DataError as error:
        raise InvalidInput("value", f"cannot be stored: {_reason(error)}") from error
    except DBAPIError as error:
        if not _is_outage(error):
            raise
        if _code(error) in DEADLOCKS:
            raise Deadlock(f"The catalog database rolled back the transaction: {_reason(error)}") from error
        raise _outage(error) from error


@contextmanager
def committing() -> Iterator[None]:
    """Wraps the COMMIT of a writing transaction: raises CommitStateUnknown if its outcome is unknown."""
    try:
        yield
    except DBAPIError as error:
        if not _may_have_committed(error):
            raise
        raise CommitStateUnknown(
            f"The catalog database did not say whether it committed: {_reason(error)}"
        ) from error


def savepoint(connection: Connection) -> AbstractContextManager[object]:
    """Keeps the transaction usable when a statement inside violates a constraint.

    PostgreSQL aborts the whole transaction unless there is a savepoint. SQLite only undoes the failed
    statement, so there no savepoint is made.
    """
    return nullcontext() if connection.dialect.name == "sqlite" else connection.begin_nested()


def as_database_error(error: Exception, dialect: Dialect, *, is_disconnect: bool = False) -> BaseException:
    """The exception that SQLAlchemy would have raised for this driver error."""
    return DBAPIError.instance(
        None, None, error, dialect.loaded_dbapi.Error, connection_invalidated=is_disconnect, dialect=dialect
    )


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process is writing. The last byte of an extended code is the primary code."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY_CODES


def is_foreign_key_violation(error: IntegrityError) -> bool:
    """Whether a referenced row is missing, or a row cannot be deleted because others reference it."""
    return _code(error) in FOREIGN_KEY_VIOLATIONS


def _may_have_committed(error: DBAPIError) -> bool:
    """Whether a failed COMMIT may have taken effect nevertheless.

    When PostgreSQL rejects a commit, the connection stays open. A connection that was lost, even with a final
    error such as 57P01 (terminated by an administrator), may have been lost after the commit. In SQLite the
    transaction is still open after SQLITE_BUSY and is rolled back; after SQLITE_FULL the log lacks its last
    frame, without which nobody reads the others. After any other I/O error the log may contain it.
    """
    if isinstance(error.orig, sqlite3.Error):
        is_undone = is_busy(error.orig) or _family(error) in DISK_FULL | READ_ONLY
        return _is_outage(error) and not is_undone
    return error.connection_invalidated


def _outage(error: DBAPIError) -> Unavailable:
    code, reason = _family(error), _reason(error)
    if code in DISK_FULL:
        return StorageFull("to the catalog database", reason)
    if code in READ_ONLY:
        return Unavailable(f"The catalog database is read-only: {reason}")
    if code in DAMAGE:
        return DatabaseDamaged(f"The catalog database is damaged: {reason}; restore it from a backup")
    return Unavailable(f"The catalog database does not answer: {reason}")


def _is_outage(error: DBAPIError) -> bool:
    if error.connection_invalidated or isinstance(error, InterfaceError):
        return True
    if isinstance(error, OperationalError):
        return _code(error) not in PROGRAMMING_ERRORS
    return isinstance(error, DatabaseError) and _family(error) in DAMAGE | READ_ONLY


def _code(error: DBAPIError) -> str | None:
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "sqlite_errorname", None)
    return code if isinstance(code, str) else None


def _family(error: DBAPIError) -> str | None:
    """The code without what SQLite's extended codes add, such as SQLITE_READONLY_DBMOVED."""
    code = _code(error)
    if code == "0A000" and "during recovery" in str(error.orig):
        # What a standby answers to BEGIN READ WRITE.
        return "25006"
    return "_".join(code.split("_")[:2]) if code is not None and code.startswith("SQLITE_") else code


def _reason(error: DBAPIError) -> str:
    return str(error.orig).partition("\n")[0]
