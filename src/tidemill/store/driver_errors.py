"""Turns what the database drivers raise into our own errors."""

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

from tidemill.errors import CommitStateUnknown, Deadlock, InvalidInput, Unavailable

# PostgreSQL's SQLSTATE and SQLite's result code for the same thing.
FOREIGN_KEY_VIOLATIONS: Final = frozenset({"23503", "SQLITE_CONSTRAINT_FOREIGNKEY"})
# SQLite raises one class for "busy" and for "no such column"; the latter is our own mistake.
PROGRAMMING_ERRORS: Final = frozenset({"SQLITE_ERROR"})
BUSY_CODES: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# PostgreSQL's deadlock_detected and serialization_failure: the transaction never happened.
DEADLOCKS: Final = frozenset({"40P01", "40001"})
UNREADABLE_FILES: Final = frozenset({"SQLITE_NOTADB", "SQLITE_CORRUPT"})


@contextmanager
def translated() -> Iterator[None]:
    """An answer that never came is Unavailable, a value no column can hold is InvalidInput."""
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
            raise Deadlock(f"The catalog database undid the transaction: {_reason(error)}") from error
        raise Unavailable(f"The catalog database does not answer: {_reason(error)}") from error


@contextmanager
def committing() -> Iterator[None]:
    """Around COMMIT of what may have written: an answer that never came is CommitStateUnknown."""
    try:
        yield
    except DBAPIError as error:
        if not _may_have_committed(error):
            raise
        raise CommitStateUnknown(
            f"The catalog database did not say whether it committed: {_reason(error)}"
        ) from error


def savepoint(connection: Connection) -> AbstractContextManager[object]:
    """A statement that may break a constraint: the transaction stays usable when it does.

    SQLite takes back a refused statement alone; PostgreSQL the transaction, unless there is a savepoint.
    """
    return nullcontext() if connection.dialect.name == "sqlite" else connection.begin_nested()


def as_database_error(error: Exception, dialect: Dialect, *, is_disconnect: bool = False) -> BaseException:
    """What SQLAlchemy would have raised, had the statement gone through it."""
    return DBAPIError.instance(
        None, None, error, dialect.loaded_dbapi.Error, connection_invalidated=is_disconnect, dialect=dialect
    )


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process is writing; extended codes have the plain one in their last byte."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY_CODES


def is_foreign_key_violation(error: IntegrityError) -> bool:
    """Whether a row is missing that has to be there, or still there because others need it."""
    return _code(error) in FOREIGN_KEY_VIOLATIONS


def _may_have_committed(error: DBAPIError) -> bool:
    """Whether COMMIT failed without the certainty that nothing was written.

    PostgreSQL refuses over a connection that stays open; one that was lost, even with a last word such as
    57P01 (terminated by an administrator), may have been lost after the commit. In SQLite the transaction is
    still open after SQLITE_BUSY and is rolled back; after an I/O error the log may hold it or not.
    """
    if isinstance(error.orig, sqlite3.Error):
        return _is_outage(error) and not is_busy(error.orig)
    return error.connection_invalidated


def _is_outage(error: DBAPIError) -> bool:
    if error.connection_invalidated or isinstance(error, InterfaceError):
        return True
    if isinstance(error, OperationalError):
        return _code(error) not in PROGRAMMING_ERRORS
    return isinstance(error, DatabaseError) and _code(error) in UNREADABLE_FILES


def _code(error: DBAPIError) -> str | None:
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "sqlite_errorname", None)
    return code if isinstance(code, str) else None


def _reason(error: DBAPIError) -> str:
    return str(error.orig).partition("\n")[0]
