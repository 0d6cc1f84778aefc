"""What a materialized view is made from: rows and columns of a table, functions, or an SQL query."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from tidemill.catalog.model.functions import Function, FunctionKind, encode_envelope
from tidemill.jobs.model.views import CHILD_INDEX, SOURCE_ROW_ID, ViewKind
from tidemill.sdk.bindings import BoundFunction, bound
from tidemill.sdk.functions import function_of, signature_of

QUERY_FORMAT: Final = "tidemill.query/1"
PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")


@runtime_checkable
class Source(Protocol):
    """A table that a view can be made from."""

    @property
    def levels(self) -> tuple[str, ...]: ...

    def projected_schema(self, columns: Mapping[str, str] | None) -> pa.Schema: ...


@dataclass(frozen=True)
class QueryDefinition:
    """Some rows and columns of a table, to define a view; made by `Table.select` and `Table.where`."""

    source: Source
    columns: Mapping[str, str | BoundFunction] | None = None
    filter: str | None = None
    row_limit: int | None = None
    row_offset: int | None = None

    def select(self, *names: str, **made: Any) -> QueryDefinition:
        """Keeps these columns, and adds those that SQL expressions or functions make.

        A function is one declared with `@tidemill.udf`; it reads the columns named like its parameters, or
        those that `tidemill.bind` says.
        """
        added = {
            name: value if isinstance(value, str) else bound(name, value) for name, value in made.items()
        }
        chosen = {**(self.columns or {}), **{name: quoted(name) for name in names}, **added}
        if not chosen:
            raise ValueError("select needs at least one column")
        return replace(self, columns=chosen)

    def where(self, condition: str) -> QueryDefinition:
        """Keeps the rows for which the SQL condition holds, besides those given before."""
        return replace(self, filter=f"({self.filter}) AND ({condition})" if self.filter else condition)

    def limit(self, rows: int) -> QueryDefinition:
        """Keeps at most so many rows, in the order the table stores them."""
        return replace(self, row_limit=_count("limit", rows))

    def offset(self, rows: int) -> QueryDefinition:
        """Leaves out so many rows first, in the order the table stores them."""
        return replace(self, row_offset=_count("offset", rows))

    def chunk(self, function: Any, *, inputs: list[str] | None = None) -> ChunkerDefinition:
        """Makes rows from each of these rows with a function declared by `@tidemill.chunker`."""
        signature = signature_of(function)
        if signature.kind is FunctionKind.TABLE:
            raise TypeError(f"{signature.name} reads rows by itself; write {signature.name}.over(table)")
        if signature.kind is not FunctionKind.CHUNKER:
            raise TypeError(
                f"{signature.name} makes one value per row; a view needs one with @tidemill.chunker"
            )
        self.refuse_functions(signature.name)
        return ChunkerDefinition(self, function_of(function), signature.bound_inputs(inputs))

    @property
    def expressions(self) -> dict[str, str] | None:
        """The columns that are SQL expressions; None means all columns of the table."""
        if self.columns is None:
            return None
        return {name: made for name, made in self.columns.items() if isinstance(made, str)}

    @property
    def functions(self) -> list[tuple[int, str, BoundFunction]]:
        """The columns that functions make, each with its place among all of them."""
        return [
            (place, name, made)
            for place, (name, made) in enumerate((self.columns or {}).items())
            if isinstance(made, BoundFunction)
        ]

    def refuse_functions(self, reader: str) -> None:
        if self.functions:
            names = ", ".join(name for _, name, _ in self.functions)
            raise ValueError(
                f"{reader} reads columns of the table, and {names} would be made by a function; "
                "make a view with these columns first"
            )

    def output_schema(self) -> pa.Schema:
        """The columns of the view."""
        return pa.schema([pa.field(SOURCE_ROW_ID, pa.int64(), nullable=False), *self.projected_fields()])

    def projected_fields(self) -> list[pa.Field]:
        expressions = self.expressions
        # Without any, the table would be asked for all columns.
        read = [] if expressions == {} else self.source.projected_schema(expressions)
        fields = [pa.field(field.name, field.type, metadata=field.metadata) for field in read]
        for place, name, made in self.functions:
            fields.insert(place, pa.field(name, made.function.value_type))
        return fields

    def request(self) -> dict[str, Any]:
        return _request(ViewKind.QUERY, self, self.output_schema(), None)


@dataclass(frozen=True)
class ChunkerDefinition:
    """Rows made by a chunker from the rows of a query, as the definition of a view; made by `Table.chunk`."""

    query: QueryDefinition
    function: Function
    inputs: tuple[str, ...]

    def output_schema(self) -> pa.Schema:
        """The columns of the view."""
        carried = self.query.projected_fields() if self.query.columns else []
        made = list(self.function.output)
        twice = {field.name for field in carried} & {field.name for field in made}
        if twice:
            raise ValueError(
                f"{self.function.name} yields {', '.join(sorted(twice))}, which select() keeps as well"
            )
        keys = [
            pa.field(SOURCE_ROW_ID, pa.int64(), nullable=False),
            pa.field(CHILD_INDEX, pa.int32(), nullable=False),
        ]
        return pa.schema([*keys, *carried, *made])

    def request(self) -> dict[str, Any]:
        spec = _spec(ViewKind.CHUNKER, self.function, self.inputs)
        return _request(ViewKind.CHUNKER, self.query, self.output_schema(), spec)


@dataclass(frozen=True)
class TableFunctionDefinition:
    """Rows that a function makes of the rows of a query, as the definition of a view; made by `over`."""

    query: QueryDefinition
    function: Function
    inputs: tuple[str, ...] | None = None
    partition_by: str | None = None
    partition_by_index: str | None = None

    def output_schema(self) -> pa.Schema:
        """The columns of the view."""
        return self.function.output

    def request(self) -> dict[str, Any]:
        spec = {
            **_spec(ViewKind.UDTF, self.function, self.inputs),
            "partition_by": self.partition_by,
            "partition_by_indexed_column": self.partition_by_index,
        }
        return _request(ViewKind.UDTF, self.query, self.output_schema(), spec)


@dataclass(frozen=True)
class SqlDefinition:
    """An SQL query over tables of the lake, as the definition of a view; made by `Lake.sql`."""

    statement: str

    def __post_init__(self) -> None:
        if not self.statement.strip():
            raise ValueError("the SQL query is empty")

    def request(self) -> dict[str, Any]:
        return {"kind": ViewKind.QUERY.value, "source_query": self.statement, "udtf_spec": None}


ViewDefinition: TypeAlias = QueryDefinition | ChunkerDefinition | TableFunctionDefinition | SqlDefinition


def quoted(name: str) -> str:
    """A column's name as an SQL expression."""
    return name if PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _count(name: str, rows: int) -> int:
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise ValueError(f"{name} is a number of rows, 0 or more, not {rows!r:.60}")
    return rows


def _spec(kind: ViewKind, function: Function, inputs: Sequence[str] | None) -> dict[str, Any]:
    envelope = _envelope(function)
    return {
        "kind": kind.value,
        "udtf": envelope,
        "udtf_sha": hashlib.sha256(envelope.encode()).hexdigest(),
        "udtf_name": function.name,
        "udtf_version": function.digest,
        "input_columns": None if inputs is None else list(inputs),
    }


def _request(
    kind: ViewKind, query: QueryDefinition, output: pa.Schema, spec: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        "kind": kind.value,
        "source_query": json.dumps(_source_query(query)),
        "output_schema": base64.b64encode(output.serialize().to_pybytes()).decode(),
        "udtf_spec": spec,
    }


def _source_query(query: QueryDefinition) -> dict[str, Any]:
    functions = [
        {"name": name, "index": place, "envelope": _envelope(made.function), "inputs": list(made.inputs)}
        for place, name, made in query.functions
    ]
    window = {"limit": query.row_limit, "offset": query.row_offset, "functions": functions or None}
    return {
        "format": QUERY_FORMAT,
        "source": list(query.source.levels),
        "columns": query.expressions,
        "filter": query.filter,
        **{key: value for key, value in window.items() if value is not None},
    }


def _envelope(function: Function) -> str:
    return base64.b64encode(encode_envelope(function)).decode()
