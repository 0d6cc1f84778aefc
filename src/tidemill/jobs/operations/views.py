"""Materialized views: declared over a source, filled by refreshes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa

from tidemill.catalog.errors import InvalidTableSchema, TableAlreadyExists
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Function, FunctionKind
from tidemill.catalog.model.identifiers import TableIdent, table_ident
from tidemill.catalog.model.tables import Table, TableKind
from tidemill.catalog.ports import Authorizer, CatalogTransaction, TableData, TableFiles
from tidemill.errors import InvalidInput
from tidemill.jobs.model.derived import MaterializedView, SourceQuery, ViewKind, frozen, view_output
from tidemill.jobs.model.jobs import RefreshRequest
from tidemill.jobs.operations.columns import bind_inputs, check_stable_row_ids, job_transaction
from tidemill.jobs.operations.submissions import JobOperations
from tidemill.jobs.ports import JobStore, SourceTables


@dataclass(frozen=True)
class ViewDefinition:
    """Everything a caller says about a new view."""

    kind: ViewKind
    query: SourceQuery
    raw_query: str
    output: pa.Schema
    function: Function | None = None
    inputs: tuple[str, ...] = ()
    has_auto_refresh: bool = False
    is_populated: bool = False


@dataclass(frozen=True)
class CreatedView:
    version: int
    job_id: str | None


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
        if definition.function is not None:
            self._authorizer.require(caller, Permission.FUNCTION, ident)
        source = self._check_names(ident, source_ident)
        schema = self._data.schema(source, None)
        check_stable_row_ids(self._data, source)
        inputs = _inputs(source_ident, schema, definition)
        query = _settled(definition, schema)
        projected = self._sources.project(source, query)
        _check_output(ident, definition, view_output(definition.kind, projected, definition.function))
        view_id = uuid4()
        table = Table(view_id, ident, self._files.location_of(view_id), TableKind.VIEW)
        view = MaterializedView(
            view_id=view_id,
            source_id=source.table_id,
            kind=definition.kind,
            query=query,
            raw_query=definition.raw_query,
            digest=_digest(definition, query, inputs),
            function_digest=None if definition.function is None else definition.function.digest,
            inputs=inputs,
            has_auto_refresh=definition.has_auto_refresh,
        )

        def remember(catalog: CatalogTransaction, _: int) -> None:
            tx = job_transaction(catalog)
            tx.tables.add(table)
            if definition.function is not None:
                tx.functions.add(definition.function, caller.principal)
            tx.derived.add_view(view)

        empty = pa.RecordBatchReader.from_batches(definition.output, [])
        written = self._data.create(table, empty, remember)
        if not definition.is_populated:
            return CreatedView(written.version, None)
        job = self._jobs.submit_refresh(caller, ident, RefreshRequest(), None)
        return CreatedView(written.version, job.job_id)

    def _check_names(self, ident: TableIdent, source: TableIdent) -> Table:
        with self._store.transaction() as tx:
            if not ident.namespace.is_root:
                tx.namespaces.get(ident.namespace)
            if tx.tables.find(ident) is not None:
                raise TableAlreadyExists(ident)
            return tx.tables.get(source)


def _inputs(ident: TableIdent, schema: pa.Schema, definition: ViewDefinition) -> tuple[str, ...]:
    function = definition.function
    if definition.kind is ViewKind.QUERY:
        if function is not None:
            raise InvalidInput("udtf_spec", "has to be null for a view of kind 'query'")
        return ()
    if function is None:
        raise InvalidInput("udtf_spec", "is required for a view of kind 'chunker'")
    if function.kind is not FunctionKind.CHUNKER:
        raise InvalidInput(
            "udtf_spec.udtf", f"{function.name} is a {function.kind} function; a chunker is needed"
        )
    return bind_inputs(ident, schema, function, definition.inputs, "udtf_spec.input_columns")


def _check_output(ident: TableIdent, definition: ViewDefinition, expected: pa.Schema) -> None:
    given = definition.output
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
    """A plain view without a projection has all columns of now; a chunker's has none but the chunker's."""
    if definition.kind is ViewKind.QUERY:
        return frozen(definition.query, schema)
    return replace(definition.query, columns=definition.query.columns or {})


def _digest(definition: ViewDefinition, query: SourceQuery, inputs: tuple[str, ...]) -> str:
    """Identifies what the view computes: another definition or another code is another digest."""
    parts = {
        "kind": definition.kind.value,
        "columns": None if query.columns is None else sorted(query.columns.items()),
        "filter": query.filter,
        "function": None if definition.function is None else definition.function.digest,
        "inputs": inputs,
        "output": definition.output.serialize().to_pybytes().hex(),
    }
    return f"sha256:{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()}"
