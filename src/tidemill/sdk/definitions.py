"""Functions bound to columns, and definitions of materialized views, as requests have them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from tidemill.catalog.model.functions import VALUE_FIELD, Function, FunctionKind, encode_envelope
from tidemill.jobs.model.views import CHILD_INDEX, SOURCE_ROW_ID, ViewKind
from tidemill.sdk.functions import function_of, signature_of
from tidemill.sdk.signatures import Signature

Columns = Mapping[str, str] | Sequence[str]
QUERY_FORMAT: Final = "tidemill.query/1"
PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True)
class BoundFunction:
    """A function of one value per row with the columns it reads, in the order of its parameters."""

    function: Function
    inputs: tuple[str, ...]


def bind(function: Any, *columns: str) -> BoundFunction:
    """A function with the columns it is to read, for a column of a view.

    Args:
        function: Declared with `@tidemill.udf`: a function, a class or an instance of one.
        *columns: A column for each parameter, in their order; none means those of its declaration.

    >>> import tidemill
    >>> @tidemill.udf
    ... def size(value: str) -> int:
    ...     return len(value)
    >>> sizes = docs.select("id", size=tidemill.bind(size, "text"))
    >>> sizes.output_schema().names
    ['__source_row_id', 'id', 'size']
    """
    signature = signature_of(function)
    _refuse_rows(signature)
    return BoundFunction(function_of(function), signature.bound_inputs(columns or None))


def bound(name: str, made: Any) -> BoundFunction:
    """What makes a column of a view: a bound function, or one that reads the columns of its declaration."""
    if isinstance(made, BoundFunction):
        return made
    try:
        return bind(made)
    except TypeError as error:
        raise TypeError(f"{name}= is an SQL expression or a function: {error}") from error


def _refuse_rows(signature: Signature) -> None:
    if signature.kind.makes_rows:
        how = f"table.chunk({signature.name})"
        if signature.kind is FunctionKind.TABLE:
            how = f"{signature.name}.over(table)"
        raise TypeError(f"{signature.name} makes rows, not a value; use {how} for a view")


def column_entry(
    outputs: Mapping[str, str], function: Any, inputs: Sequence[str] | None, *, auto_backfill: bool = False
) -> dict[str, Any]:
    """Columns that one function fills, each with the field of the result it takes; none means all of it."""
    signature = signature_of(function)
    _refuse_rows(signature)
    described = function_of(function)
    column = {
        "input_columns": list(signature.bound_inputs(inputs)),
        # The types of the columns are the envelope's; saying them twice could only contradict.
        "outputs": [
            {"column": name, "struct_field": field, "nullable": True} for name, field in outputs.items()
        ],
        "image": "",
        "udf": base64.b64encode(encode_envelope(described)).decode(),
        "udf_name": described.name,
        "udf_version": described.digest,
        "udf_backend": "tidemill",
    }
    return {**column, "auto_backfill": True} if auto_backfill else column


def struct_outputs(columns: Columns, function: Any) -> dict[str, str]:
    """Which field of a function's struct fills which column; names alone are fields, or in their order."""
    signature = signature_of(function)
    fields = _struct_fields(signature)
    if isinstance(columns, str) or not columns:
        raise TypeError("columns are a dict {'column': 'field'} or a list of names")
    chosen = dict(columns) if isinstance(columns, Mapping) else _by_name(signature, fields, tuple(columns))
    for name, field in chosen.items():
        if field not in fields:
            raise ValueError(
                f"'{name}' takes the field '{field}', which {signature.name} does not return; "
                f"it has {', '.join(fields)}"
            )
    return chosen


def _struct_fields(signature: Signature) -> tuple[str, ...]:
    made = signature.output.field(VALUE_FIELD).type if not signature.kind.makes_rows else None
    if made is None or not pa.types.is_struct(made):
        raise TypeError(
            f"{signature.name} does not return a struct; to fill several columns, return a NamedTuple or a "
            "dataclass, or give output=pa.struct([...])"
        )
    return tuple(made.field(index).name for index in range(made.num_fields))


def _by_name(signature: Signature, fields: tuple[str, ...], names: tuple[str, ...]) -> dict[str, str]:
    if len(set(names)) != len(names):
        raise ValueError(f"a column is named twice: {', '.join(names)}")
    if set(names) <= set(fields):
        return {name: name for name in names}
    # Taken in order although some names are fields, a value could land in the wrong column unseen.
    if len(names) != len(fields) or set(names) & set(fields):
        raise ValueError(
            f"{', '.join(names)} are neither fields of what {signature.name} returns ({', '.join(fields)}) "
            "nor one new name for each; write {'column': 'field', ...}"
        )
    return dict(zip(names, fields, strict=True))


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
        """Keeps at most this many rows, in the order the table stores them."""
        return replace(self, row_limit=_count("limit", rows))

    def offset(self, rows: int) -> QueryDefinition:
        """Skips this many rows first, in the order the table stores them."""
        return replace(self, row_offset=_count("offset", rows))

    def chunk(self, function: Any, *, inputs: list[str] | None = None) -> ChunkerDefinition:
        """Makes rows from each of these rows with a function declared by `@tidemill.chunker`."""
        signature = signature_of(function)
        if signature.kind is FunctionKind.TABLE:
            raise TypeError(f"{signature.name} reads rows itself; write {signature.name}.over(table)")
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
