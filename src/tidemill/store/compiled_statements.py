"""SQL statements that are built and compiled once, for the few that nearly every request runs.

Building and executing a SQLAlchemy statement costs many times as much as the query itself on a local SQLite
file. A `CompiledStatement` compiles once per dialect, binds its
parameters and runs on the driver's own cursor, inside the transaction of the given connection. It converts
values with the same type processors and raises the same exceptions as SQLAlchemy would, so callers need not
know the difference.

Use it on hot paths only; everything else is easier to read as a plain SQLAlchemy statement.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import ClauseElement, Connection, Dialect, Uuid
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

from tidemill.store.driver_errors import as_database_error

MAX_CACHED_IDS: Final = 16_384

Convert = Callable[[Any], Any]


class CompiledStatement:
    """A statement that runs on the driver's cursor; values are passed by parameter name.

    Raises the errors that SQLAlchemy would raise.
    """

    def __init__(self, statement: ClauseElement, columns: Sequence[str] | None = None) -> None:
        """`columns` lists the columns that an INSERT sets."""
        self._statement = statement
        self._columns = columns
        self._by_dialect: dict[str, _DialectStatement] = {}

    def all(self, connection: Connection, values: Mapping[str, Any]) -> list[Any]:
        """Returns all rows, with columns as attributes."""
        compiled = self._for_dialect(connection)
        rows: Sequence[Sequence[Any]] = compiled.run(connection, values, _fetch_all)
        return [compiled.row(row) for row in rows]

    def first(self, connection: Connection, values: Mapping[str, Any]) -> Any | None:
        compiled = self._for_dialect(connection)
        row: Sequence[Any] | None = compiled.run(connection, values, _fetch_one)
        return None if row is None else compiled.row(row)

    def execute(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """Runs the statement and returns the number of changed rows."""
        return int(self._for_dialect(connection).run(connection, values, _row_count))

    def _for_dialect(self, connection: Connection) -> _DialectStatement:
        dialect = connection.dialect
        compiled = self._by_dialect.get(dialect.name)
        if compiled is None:
            compiled = self._by_dialect[dialect.name] = _DialectStatement(
                self._statement, self._columns, dialect
            )
        return compiled


class _DialectStatement:
    def __init__(self, statement: ClauseElement, columns: Sequence[str] | None, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=columns)
        assert isinstance(compiled, SQLCompiler)
        self._dialect = dialect
        self._driver_error = dialect.loaded_dbapi.Error
        self._sql = str(compiled)
        self._positions = compiled.positiontup
        self._defaults = dict(compiled.params)
        bind_converters = {
            name: bind.type.dialect_impl(dialect).bind_processor(dialect)
            for bind, name in compiled.bind_names.items()
        }
        self._to_database = {
            name: convert for name, convert in bind_converters.items() if convert is not None
        }
        # What a SELECT reads, or another statement returns.
        selected = list(getattr(statement, "exported_columns", ()))
        self._make_row: Callable[[list[Any]], Any] = _row_type([column.key for column in selected])._make
        result_converters = [_reader(column.type, dialect) for column in selected]
        self._from_database = [
            (index, convert) for index, convert in enumerate(result_converters) if convert is not None
        ]

    def run(self, connection: Connection, values: Mapping[str, Any], fetch: Callable[[Any], Any]) -> Any:
        parameters = {name: values.get(name, default) for name, default in self._defaults.items()}
        for name, convert in self._to_database.items():
            parameters[name] = convert(parameters[name])
        arguments = parameters if self._positions is None else [parameters[name] for name in self._positions]
        raw = connection.connection
        cursor = raw.cursor()
        try:
            cursor.execute(self._sql, arguments)
            return fetch(cursor)
        except self._driver_error as error:
            is_disconnect = self._dialect.is_disconnect(error, raw, cursor)
            if is_disconnect:
                connection.invalidate(error)
            raise as_database_error(error, self._dialect, is_disconnect=is_disconnect) from error

    def row(self, raw: Sequence[Any]) -> Any:
        values = list(raw)
        for index, convert in self._from_database:
            values[index] = convert(values[index])
        return self._make_row(values)


def _reader(kind: TypeEngine[Any], dialect: Dialect) -> Convert | None:
    convert = kind.dialect_impl(dialect).result_processor(dialect, None)
    # The same few ids recur, and constructing a UUID takes as long as converting the rest of the row.
    return lru_cache(MAX_CACHED_IDS)(convert) if convert is not None and isinstance(kind, Uuid) else convert


def _row_type(names: Sequence[str]) -> Any:
    return namedtuple("Row", names)


def _fetch_all(cursor: Any) -> Any:
    return cursor.fetchall()


def _fetch_one(cursor: Any) -> Any:
    return cursor.fetchone()


def _row_count(cursor: Any) -> Any:
    return cursor.rowcount
