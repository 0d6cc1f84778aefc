"""Definitions of views: what a caller says, and what follows from it for the tables it is made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from tidemill.catalog.errors import InvalidTableSchema
from tidemill.catalog.model.functions import OWN_ENVIRONMENT, Environment, Function, FunctionKind
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput
from tidemill.jobs.model.columns import bind_inputs
from tidemill.jobs.model.failures import FAIL_AT_ONCE, ErrorPolicy
from tidemill.jobs.model.views import INTERNAL_COLUMNS, RefreshPolicy, SourceQuery, ViewColumn, ViewKind
from tidemill.jobs.views.sql.text import check_deterministic

PARTITION_BY: Final = "udtf_spec.partition_by"
PARTITION_INDEX: Final = "udtf_spec.partition_by_indexed_column"


@dataclass(frozen=True)
class FunctionColumn:
    """A column of a query view that a function makes, and its place among those of the query.

    `field` is what the caller calls it.
    """

    name: str
    index: int
    function: Function
    inputs: tuple[str, ...] = ()
    field: str = "source_query.column_udfs"


@dataclass(frozen=True)
class ViewDefinition:
    """Everything a caller says about a new view.

    `function` and `inputs` are a chunker's or a table function's; `columns` are made by functions in a query
    view. `output` are the columns as the caller expects them, None: whatever the definition yields. It may
    have Geneva's `__is_set`; its metadata and `metadata` become the view's. A `statement` is for Spark SQL,
    and names its sources itself; without one, and with a query of nothing, the definition is in a form that
    nobody here can read. `query_field` is what the caller calls the query.
    """

    kind: ViewKind
    query: SourceQuery
    raw_query: str
    output: pa.Schema | None
    function: Function | None = None
    inputs: tuple[str, ...] = ()
    has_auto_refresh: bool = False
    is_populated: bool = False
    columns: tuple[FunctionColumn, ...] = ()
    partition_by: str | None = None
    partition_index: str | None = None
    statement: str | None = None
    policy: RefreshPolicy = RefreshPolicy.AUTO
    on_error: ErrorPolicy = FAIL_AT_ONCE
    environment: Environment = OWN_ENVIRONMENT
    metadata: Mapping[str, str] = field(default_factory=dict)
    query_field: str = "source_query"

    @property
    def is_opaque(self) -> bool:
        return not self.query.source and self.statement is None

    @property
    def is_partitioned(self) -> bool:
        return self.partition_by is not None or self.partition_index is not None

    @property
    def functions(self) -> list[Function]:
        own = [] if self.function is None else [self.function]
        return [*own, *(column.function for column in self.columns)]


@dataclass(frozen=True)
class ReadSource:
    """A table that a view is made from, and its columns of now."""

    table: Table
    schema: pa.Schema

    @property
    def ident(self) -> TableIdent:
        return self.table.ident


@dataclass(frozen=True)
class SettledView:
    """What a definition means, given its sources."""

    query: SourceQuery
    output: pa.Schema
    inputs: tuple[str, ...] = ()
    columns: tuple[ViewColumn, ...] = ()
    # Per source, if columns added to it later are no part of the view.
    source_columns: tuple[tuple[str, ...], ...] = ()


def check_column_functions(definition: ViewDefinition) -> None:
    """Of a view whose columns functions make: no function makes its rows."""
    for column in definition.columns:
        if column.function.kind.makes_rows:
            raise InvalidInput(
                column.field,
                f"{column.function.name} is a {column.function.kind} function, "
                "which does not make one value per row",
            )
    if definition.function is not None:
        raise InvalidInput("udtf_spec", "must be null for a view of kind 'query'")


def check_row_function(definition: ViewDefinition, wanted: FunctionKind) -> Function:
    """Of a view whose rows one function of that kind makes."""
    for column in definition.columns:
        raise InvalidInput(column.field, "must be left out, except in a view of kind 'query'")
    function = definition.function
    if function is None:
        raise InvalidInput("udtf_spec", f"is required for a view of kind '{definition.kind}'")
    if function.kind is not wanted:
        raise InvalidInput(
            "udtf_spec.udtf", f"{function.name} is a {function.kind} function; a {wanted} is needed"
        )
    return function


def check_partitioning(definition: ViewDefinition, *, is_allowed: bool) -> None:
    if definition.partition_by is not None and definition.partition_index is not None:
        raise InvalidInput(PARTITION_INDEX, "excludes partition_by; give one of them")
    if definition.is_partitioned and not is_allowed:
        name = PARTITION_BY if definition.partition_by is not None else PARTITION_INDEX
        raise InvalidInput(name, f"is for views of kind udtf only, not {definition.kind}")


def bound_columns(definition: ViewDefinition, source: ReadSource) -> tuple[ViewColumn, ...]:
    return tuple(
        ViewColumn(
            name=column.name,
            function_digest=column.function.digest,
            inputs=bind_inputs(source.ident, source.schema, column.function, column.inputs, column.field),
        )
        for column in definition.columns
    )


def checked_output(ident: TableIdent, definition: ViewDefinition, expected: pa.Schema) -> pa.Schema:
    """The columns as declared, or as expected; internal columns that were not declared are added."""
    given = definition.output
    _check_distinct(ident, expected)
    output = expected if given is None else _with_internal(given, expected)
    _check_output(ident, output, expected)
    if definition.metadata:
        known = {key.decode(): value.decode() for key, value in (output.metadata or {}).items()}
        output = output.with_metadata({**known, **definition.metadata})
    return output


def _with_internal(given: pa.Schema, expected: pa.Schema) -> pa.Schema:
    """The given columns, and the internal ones of the view in their places, whether they are given or not."""
    declared = {field.name: field for field in given}
    if len(declared) < len(given):
        return given
    internal = [name for name in expected.names if name in INTERNAL_COLUMNS]
    output = pa.schema([field for field in given if field.name not in internal], given.metadata)
    for name in internal:
        place = min(expected.get_field_index(name), len(output))
        output = output.insert(place, declared.get(name, expected.field(name)))
    return output


def definition_digest(definition: ViewDefinition, settled: SettledView) -> str:
    """Identifies what the view computes: another definition or another code is another digest."""
    query = settled.query
    parts = {
        "kind": definition.kind.value,
        "columns": None if query.columns is None else sorted(query.columns.items()),
        "filter": query.filter,
        "function": None if definition.function is None else definition.function.digest,
        "inputs": settled.inputs,
        "functions": [[column.name, column.function_digest, column.inputs] for column in settled.columns],
        "window": [query.offset, query.limit],
        "partition_by": definition.partition_by,
        "partition_index": definition.partition_index,
        "statement": definition.statement,
        "unread": definition.raw_query if definition.is_opaque else None,
        "output": settled.output.serialize().to_pybytes().hex(),
    }
    return f"sha256:{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()}"


def check_opaque(definition: ViewDefinition) -> None:
    """It is kept as it is; what would need to be read is refused."""
    if definition.output is None:
        raise InvalidInput("output_schema", "is missing; it has to say which columns the view has")
    unread = f"{definition.query_field} is in a form that is only kept here, and cannot be refreshed"
    if definition.is_populated:
        raise InvalidInput("with_no_data", f"must be true: {unread}")
    if definition.has_auto_refresh:
        raise InvalidInput("auto_refresh", f"must be false: {unread}")


def check_expressions(definition: ViewDefinition) -> None:
    query, name = definition.query, definition.query_field
    if query.filter is not None:
        check_deterministic(query.filter, f"{name}.filter")
    for alias, expression in (query.columns or {}).items():
        check_deterministic(expression, f"{name}.columns.{alias}"[:200])


def _check_distinct(ident: TableIdent, expected: pa.Schema) -> None:
    if len(set(expected.names)) != len(expected.names):
        twice = sorted({name for name in expected.names if expected.names.count(name) > 1})
        raise InvalidTableSchema(ident, f"the view would have the columns {twice} twice; rename them")


def _check_output(ident: TableIdent, given: pa.Schema, expected: pa.Schema) -> None:
    if given.names != expected.names:
        raise InvalidTableSchema(
            ident, f"output_schema has the columns {given.names}, but the definition yields {expected.names}"
        )
    for column, wanted in zip(given, expected, strict=True):
        if not column.type.equals(wanted.type):
            raise InvalidTableSchema(
                ident,
                f"output_schema says '{column.name}' is {column.type}, "
                f"but the definition yields {wanted.type}",
            )
