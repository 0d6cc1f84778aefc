"""Computed columns: declared with a function, filled by jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast
from uuid import uuid4

import pyarrow as pa

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Function, FunctionKind
from tidemill.catalog.model.identifiers import TableIdent, check_name
from tidemill.catalog.model.tables import Table
from tidemill.catalog.ports import Authorizer, CatalogTransaction, TableData
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.derived import ComputedColumn
from tidemill.jobs.ports import JobStore, JobTransaction


@dataclass(frozen=True)
class ColumnDeclaration:
    """A column to be filled by a function; no inputs means: the columns named like its parameters."""

    name: str
    function: Function
    inputs: tuple[str, ...] = ()


class ColumnOperations:
    def __init__(self, store: JobStore, authorizer: Authorizer, data: TableData) -> None:
        self._store = store
        self._authorizer = authorizer
        self._data = data

    def declare(self, caller: Caller, ident: TableIdent, declarations: Sequence[ColumnDeclaration]) -> int:
        """Adds all-null columns and remembers what fills them, in one commit; returns the new version."""
        self._authorizer.require(caller, Permission.WRITE, ident)
        self._authorizer.require(caller, Permission.FUNCTION, ident)
        with self._store.transaction() as tx:
            table = tx.tables.get(ident)
        schema = self._data.schema(table, None)
        check_stable_row_ids(self._data, table)
        columns = [_column(table, schema, declaration) for declaration in declarations]
        _check_distinct(declarations)

        def remember(catalog: CatalogTransaction, _: int) -> None:
            tx = job_transaction(catalog)
            for declaration, column in zip(declarations, columns, strict=True):
                tx.functions.add(declaration.function, caller.principal)
                tx.derived.add_column(column)

        fields = [pa.field(item.name, item.function.value_type) for item in declarations]
        return self._data.add_empty_columns(table, fields, remember)


def job_transaction(tx: CatalogTransaction) -> JobTransaction:
    """Catalog code hands on the transaction it was given by our store, which is one of jobs as well."""
    return cast(JobTransaction, tx)


def check_stable_row_ids(data: TableData, table: Table) -> None:
    if not data.has_stable_row_ids(table):
        raise Unsupported(
            f"{table.ident} was written without stable row ids, so changes of its rows cannot be followed; "
            "create it through the server, or write it with enable_stable_row_ids=True"
        )


def bind_inputs(
    ident: TableIdent, schema: pa.Schema, function: Function, inputs: Sequence[str], field: str
) -> tuple[str, ...]:
    """The columns a function reads, checked to be there and to be as many as its parameters."""
    bound = tuple(inputs) or function.parameters
    if not bound:
        raise InvalidInput(field, f"{function.name} needs at least one input column")
    if len(bound) != len(function.parameters):
        parameters = ", ".join(function.parameters)
        raise InvalidInput(field, f"{function.name} takes ({parameters}), but got {len(bound)} columns")
    for name in bound:
        if name not in schema.names:
            raise TableColumnNotFound(ident, name, tuple(schema.names))
    return bound


def _column(table: Table, schema: pa.Schema, declaration: ColumnDeclaration) -> ComputedColumn:
    function = declaration.function
    check_name(declaration.name, "name")
    if function.kind is FunctionKind.CHUNKER:
        raise InvalidInput(
            "virtual_column.udf", f"{function.name} is a chunker; a column needs one value per row"
        )
    if declaration.name in schema.names:
        raise InvalidInput("name", f"{table.ident} already has a column '{declaration.name}'")
    inputs = bind_inputs(table.ident, schema, function, declaration.inputs, "virtual_column.input_columns")
    return ComputedColumn(uuid4(), table.table_id, declaration.name, function.digest, inputs)


def _check_distinct(declarations: Sequence[ColumnDeclaration]) -> None:
    names = [declaration.name for declaration in declarations]
    if not names:
        raise InvalidInput("new_columns", "is empty; name at least one column")
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput("new_columns", f"names '{name}' twice")
