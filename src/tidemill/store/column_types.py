"""Column types that are alike on SQLite and PostgreSQL, the database clock, and values stored as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache, partial
from typing import Any, Final, TypeVar, get_origin, get_type_hints

import orjson
from sqlalchemy import BigInteger, Dialect, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ColumnElement
from sqlalchemy.types import TypeDecorator

from tidemill.jobs.model.declarations import without_none

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_BIGINT: Final = 2**63 - 1


class MillisecondTime(TypeDecorator[datetime]):
    """A time stored as milliseconds since 1970; finer digits are truncated."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else (value - EPOCH) // timedelta(milliseconds=1)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else from_milliseconds(value)


class RowId(TypeDecorator[int]):
    """An unsigned row id in a signed column: ids above the largest signed number are stored as negative.

    Those ids sort before all others. Rows are numbered from 0, so ids that large do not occur in practice.
    """

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        return value if value is None or value <= MAX_BIGINT else value - 2**64

    def process_result_value(self, value: Any, dialect: Dialect) -> int | None:
        return None if value is None else int(value) % 2**64


class JsonText(TypeDecorator[Any]):
    """A JSON value stored as text; None is SQL NULL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else orjson.dumps(value).decode()

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else orjson.loads(value)


class DatabaseTime(ColumnElement[int]):
    """The database clock at the moment the statement reads it, in milliseconds since 1970."""

    inherit_cache = True
    type = BigInteger()


@compiles(DatabaseTime, "sqlite")
def _sqlite_time(element: DatabaseTime, compiler: SQLCompiler, **options: Any) -> str:
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


@compiles(DatabaseTime, "postgresql")
def _postgresql_time(element: DatabaseTime, compiler: SQLCompiler, **options: Any) -> str:
    # Not now(), which is when the transaction began: after waiting for a lock it would be outdated.
    return "CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)"


def from_milliseconds(value: int) -> datetime:
    return EPOCH + timedelta(milliseconds=value)


def in_milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


ValueT = TypeVar("ValueT")


def value_of(kind: type[ValueT], stored: Mapping[str, Any]) -> ValueT:
    """What an older server did not store has its default; fields of a newer server are ignored."""
    readers = _readers(kind)  # type: ignore[arg-type]  # classes are hashable
    return kind(**{name: read(stored[name]) for name, read in readers.items() if name in stored})


@cache
def _readers(kind: type) -> Mapping[str, Callable[[Any], Any]]:
    hints = get_type_hints(kind)
    return {field.name: _optional(_reader(without_none(hints[field.name]))) for field in fields(kind)}


def _reader(kind: Any) -> Callable[[Any], Any]:
    if isinstance(kind, type) and is_dataclass(kind):
        return partial(value_of, kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    return tuple if get_origin(kind) is tuple else _as_it_is


def _optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda stored: None if stored is None else read(stored)


def _as_it_is(stored: Any) -> Any:
    return stored
