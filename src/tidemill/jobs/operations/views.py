"""Materialized views: declared over a source, filled by refreshes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import pyarrow as pa

from tidemill.catalog.errors import InvalidTableSchema, TableAlreadyExists, TableColumnNotFound
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Function, FunctionKind
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent, table_ident
from tidemill.catalog.model.tables import Page, Table, TableKind
from tidemill.catalog.ports import Authorizer, CatalogTransaction, TableData, TableFiles
from tidemill.errors import InvalidInput
from tidemill.jobs.errors import ViewNotFound
from tidemill.jobs.model.derived import (
    IS_SET,
    MaterializedView,
    SourceQuery,
    ViewColumn,
    ViewKind,
    frozen,
    view_output,
)
from tidemill.jobs.model.jobs import RefreshRequest
from tidemill.jobs.operations.columns import bind_inputs, job_transaction
from tidemill.jobs.operations.submissions import JobOperations
from tidemill.jobs.ports import JobStore, SourceTables

MADE_BY: Final[Mapping[ViewKind, FunctionKind]] = {
    ViewKind.CHUNKER: FunctionKind.CHUNKER,
    ViewKind.UDTF: FunctionKind.TABLE,
}
# Types whose values can be written into a condition, and of which no two are equal by accident.
KEY_TYPES: Final[Sequence[Callable[[pa.DataType], bool]]] = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_boolean,
    pa.types.is_date32,
)


@dataclass(frozen=True)
class FunctionColumn:
    """A column of a query view that a function makes, and its place among those of the query."""

    name: str
    index: int
    function: Function
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class ViewDefinition:
    """Everything a caller says about a new view.

    `function` and `inputs` are a chunker's or a table function's; `columns` are made by functions in a query
    view. `output` may have Geneva's `__is_set`; its metadata become the view's.
    """

    kind: ViewKind
    query: SourceQuery
    raw_query: str
    output: pa.Schema
    function: Function | None = None
    inputs: tuple[str, ...] = ()
    has_auto_refresh: bool = False
    is_populated: bool = False
    columns: tuple[FunctionColumn, ...] = ()
    partition_by: str | None = None


@dataclass(frozen=True)
class CreatedView:
    version: int
    job_id: str | None


@dataclass(frozen=True)
class DescribedView:
    """A view with its table and its source; the source may have been dropped."""

    table: Table
    view: MaterializedView
    source: Table | None


class ViewOperations:
    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        files: TableFiles,
        data: TableData,
        sources: SourceTables,
        jobs: JobOperations,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self._data = data
        self._sources = sources
        self._jobs = jobs

    def create(self, caller: Caller, ident: TableIdent, definition: ViewDefinition) -> CreatedView:
        source_ident = table_ident(definition.query.source, "source_query.source")
        self._authorizer.require(caller, Permission.WRITE, ident)
        self._authorizer.require(caller, Permission.READ, source_ident)
        functions = _functions(definition)
        if functions:
            self._authorizer.require(caller, Permission.FUNCTION, ident)
        source = self._check_names(ident, source_ident)
        schema = self._data.schema(source, None)
        inputs = _inputs(source_ident, schema, definition)
        columns = _columns(source_ident, schema, definition)
        query = _settled(definition, schema)
        projected = self._sources.project(source, query)
        _check_output(ident, definition.output, _expected(definition, projected))
        view_id = uuid4()
        table = Table(view_id, ident, self._files.location_of(view_id), TableKind.VIEW)
        view = MaterializedView(
            view_id=view_id,
            source_id=source.table_id,
            kind=definition.kind,
            query=query,
            raw_query=definition.raw_query,
            digest=_digest(definition, query, inputs, columns),
            function_digest=None if definition.function is None else definition.function.digest,
            inputs=inputs,
            has_auto_refresh=definition.has_auto_refresh,
            output=definition.output,
            columns=columns,
            partition_by=definition.partition_by,
        )

        def remember(catalog: CatalogTransaction, _: int) -> None:
            tx = job_transaction(catalog)
            tx.tables.add(table)
            for function in functions:
                tx.functions.add(function, caller.principal)
            tx.derived.add_view(view)

        empty = pa.RecordBatchReader.from_batches(definition.output, [])
        written = self._data.create(table, empty, remember)
        if not definition.is_populated:
            return CreatedView(written.version, None)
        job = self._jobs.submit_refresh(caller, ident, RefreshRequest(), None)
        return CreatedView(written.version, job.job_id)

    def describe(self, caller: Caller, ident: TableIdent) -> DescribedView:
        """Raises ViewNotFound when it is a plain table."""
        self._authorizer.require(caller, Permission.READ, ident)
        with self._store.transaction() as tx:
            table = tx.tables.get(ident)
            view = tx.derived.find_view(table.table_id)
            if view is None:
                raise ViewNotFound(ident)
            return DescribedView(table, view, tx.tables.find_by_id(view.source_id))

    def list_in(self, caller: Caller, namespace: NamespacePath) -> Sequence[DescribedView]:
        """Those directly in the namespace, sorted by name."""
        self._authorizer.require(caller, Permission.READ, namespace)
        with self._store.transaction() as tx:
            views = {view.view_id: view for view in tx.derived.list_views()}
            tables = [table for table in tx.tables.list_in(namespace, Page()) if table.table_id in views]
            return [
                DescribedView(table, view, tx.tables.find_by_id(view.source_id))
                for table in tables
                if (view := views[table.table_id])
            ]

    def project(self, caller: Caller, query: SourceQuery, field: str) -> pa.Schema:
        """The columns that a query yields; `field` is what the caller calls it. Raises InvalidInput."""
        ident = table_ident(query.source, field)
        self._authorizer.require(caller, Permission.READ, ident)
        with self._store.transaction() as tx:
            source = tx.tables.get(ident)
        return self._sources.project(source, frozen(query, self._data.schema(source, None)), field)

    def _check_names(self, ident: TableIdent, source: TableIdent) -> Table:
        with self._store.transaction() as tx:
            if not ident.namespace.is_root:
                tx.namespaces.get(ident.namespace)
            if tx.tables.find(ident) is not None:
                raise TableAlreadyExists(ident)
            return tx.tables.get(source)


def _functions(definition: ViewDefinition) -> list[Function]:
    own = [] if definition.function is None else [definition.function]
    return [*own, *(column.function for column in definition.columns)]


def _inputs(ident: TableIdent, schema: pa.Schema, definition: ViewDefinition) -> tuple[str, ...]:
    """What the chunker or table function of the view reads."""
    function, kind = definition.function, definition.kind
    if kind is ViewKind.QUERY:
        if function is not None:
            raise InvalidInput("udtf_spec", "has to be null for a view of kind 'query'")
        return ()
    if function is None:
        raise InvalidInput("udtf_spec", f"is required for a view of kind '{kind}'")
    if function.kind is not MADE_BY[kind]:
        raise InvalidInput(
            "udtf_spec.udtf", f"{function.name} is a {function.kind} function; a {MADE_BY[kind]} is needed"
        )
    if kind is ViewKind.UDTF:
        _check_partitions(ident, schema, definition)
        return definition.inputs
    if not definition.inputs and not function.parameters:
        raise InvalidInput("udtf_spec.input_columns", "is missing; a chunker needs to be told its columns")
    return bind_inputs(ident, schema, function, definition.inputs, "udtf_spec.input_columns")


def _check_partitions(ident: TableIdent, schema: pa.Schema, definition: ViewDefinition) -> None:
    column = definition.partition_by
    if column is None:
        return
    if column not in schema.names:
        raise TableColumnNotFound(ident, column, tuple(schema.names))
    if definition.query.is_window:
        raise InvalidInput("udtf_spec.partition_by", "cannot be combined with a limit or offset of the query")
    value_type = schema.field(column).type
    if not any(is_one(value_type) for is_one in KEY_TYPES):
        raise InvalidInput(
            "udtf_spec.partition_by",
            f"'{column}' is {value_type}; it has to be integer, text, boolean or date",
        )


def _columns(ident: TableIdent, schema: pa.Schema, definition: ViewDefinition) -> tuple[ViewColumn, ...]:
    if definition.columns and definition.kind is not ViewKind.QUERY:
        raise InvalidInput("source_query.column_udfs", "has to be empty, except in a view of kind 'query'")
    for column in definition.columns:
        if column.function.kind.makes_rows:
            raise InvalidInput(
                "source_query.column_udfs", f"{column.function.name} does not make one value per row"
            )
    field = "source_query.column_udfs.input_columns"
    return tuple(
        ViewColumn(
            name=column.name,
            function_digest=column.function.digest,
            inputs=bind_inputs(ident, schema, column.function, column.inputs, field),
        )
        for column in definition.columns
    )


def _expected(definition: ViewDefinition, projected: pa.Schema) -> pa.Schema:
    """The columns the definition yields; `__is_set` is there if the caller wants it."""
    fields = list(projected)
    for column in sorted(definition.columns, key=lambda column: column.index):
        fields.insert(column.index, pa.field(column.name, column.function.value_type))
    expected = view_output(definition.kind, pa.schema(fields), definition.function)
    if definition.kind is ViewKind.QUERY and IS_SET in definition.output.names:
        expected = expected.insert(1, pa.field(IS_SET, pa.bool_()))
    return expected


def _check_output(ident: TableIdent, given: pa.Schema, expected: pa.Schema) -> None:
    if len(set(expected.names)) != len(expected.names):
        twice = sorted({name for name in expected.names if expected.names.count(name) > 1})
        raise InvalidTableSchema(ident, f"the view would have the columns {twice} twice; rename them")
    if given.names != expected.names:
        raise InvalidTableSchema(
            ident, f"output_schema has the columns {given.names}, but the definition yields {expected.names}"
        )
    for field, wanted in zip(given, expected, strict=True):
        if not field.type.equals(wanted.type):
            raise InvalidTableSchema(
                ident,
                f"output_schema says '{field.name}' is {field.type}, but the definition yields {wanted.type}",
            )


def _settled(definition: ViewDefinition, schema: pa.Schema) -> SourceQuery:
    """A view without a projection has all columns of now; a chunker's has none but the chunker's."""
    if definition.kind is ViewKind.CHUNKER:
        return replace(definition.query, columns=definition.query.columns or {})
    return frozen(definition.query, schema)


def _digest(
    definition: ViewDefinition,
    query: SourceQuery,
    inputs: tuple[str, ...],
    columns: tuple[ViewColumn, ...],
) -> str:
    """Identifies what the view computes: another definition or another code is another digest."""
    parts = {
        "kind": definition.kind.value,
        "columns": None if query.columns is None else sorted(query.columns.items()),
        "filter": query.filter,
        "function": None if definition.function is None else definition.function.digest,
        "inputs": inputs,
        "functions": [[column.name, column.function_digest, column.inputs] for column in columns],
        "window": [query.offset, query.limit],
        "partition_by": definition.partition_by,
        "output": definition.output.serialize().to_pybytes().hex(),
    }
    return f"sha256:{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()}"
