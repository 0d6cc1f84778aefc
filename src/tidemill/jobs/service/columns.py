"""Computed columns: declared with a function, filled by jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

import pyarrow as pa

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Function, sql_function
from tidemill.catalog.model.identifiers import TableIdent, check_name
from tidemill.catalog.model.tables import Table
from tidemill.catalog.ports import Authorizer, TableFiles
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.columns import ColumnOutput, ComputedColumn, bind_inputs
from tidemill.jobs.model.views import SourceQuery
from tidemill.jobs.planning.column_progress import DeclaredColumn
from tidemill.jobs.ports import (
    JobStore,
    JobTransaction,
    SourceTables,
    TableData,
    TransactionEffect,
)

# Column files cannot hold blobs: Lance writes those apart from the rows.
BLOB_MARK: Final = "lance-encoding:blob"


@dataclass(frozen=True)
class SqlExpression:
    """A function still without a type: the table says what type the expression has."""

    text: str


@dataclass(frozen=True)
class ColumnDeclaration:
    """A column to be filled by a function; no inputs means: the columns named like its parameters.

    `siblings` unpack the function's struct result into several columns; `name` has to be the first of them.
    `metadata` is written into the fields of columns, `files` below the table's location, by relative path.
    """

    name: str
    function: Function | SqlExpression
    inputs: tuple[str, ...] = ()
    siblings: tuple[ColumnOutput, ...] = ()
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    has_auto_backfill: bool = False


class ColumnOperations:
    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        files: TableFiles,
        data: TableData,
        sources: SourceTables,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self._data = data
        self._sources = sources

    def declare(self, caller: Caller, ident: TableIdent, declarations: Sequence[ColumnDeclaration]) -> int:
        """Adds all-null columns and remembers what fills them, in one commit; returns the new version."""
        table = self._writable(caller, ident)
        schema = self._data.schema(table, None)
        declared = [self._declared(table, schema, declaration) for declaration in declarations]
        _check_names(table, schema, [name for item in declared for name in item.column.names])
        fields = [
            field
            for declaration, item in zip(declarations, declared, strict=True)
            for field in _fields(item, declaration.metadata)
        ]
        self._data.check_types(table, fields)
        self._write_files(table, declarations)

        def remember(tx: JobTransaction, _: int) -> None:
            # Whoever declares the same functions at this moment adds them in the same order.
            for function in sorted((item.function for item in declared), key=lambda f: (f.name, f.digest)):
                tx.functions.add(function, caller.principal)
            for item in declared:
                for name in item.column.names:
                    # Left behind by a column of that name that somebody dropped.
                    tx.derived.remove_column(table.table_id, name)
                tx.derived.add_column(item.column)

        return self._data.add_empty_columns(table, fields, remember)

    def alter(self, caller: Caller, ident: TableIdent, declaration: ColumnDeclaration) -> None:
        """Has another function fill a column from now on; its values stay until the next backfill."""
        table = self._writable(caller, ident)
        schema = self._data.schema(table, None)
        if declaration.name not in schema.names:
            raise TableColumnNotFound(ident, declaration.name, tuple(schema.names))
        known = pa.schema([field for field in schema if field.name != declaration.name])
        item = self._declared(table, known, declaration)
        given = schema.field(declaration.name).type
        if item.column.siblings or not item.function.value_type.equals(given):
            raise InvalidInput(
                "virtual_column",
                f"'{declaration.name}' is {given} and {item.function.name} gives {item.function.value_type}; "
                "drop the column and add it again",
            )
        self._write_files(table, [declaration])
        with self._store.transaction() as tx:
            tx.functions.add(item.function, caller.principal)
            before = tx.derived.find_column(table.table_id, declaration.name)
            if before is None:
                tx.derived.add_column(item.column)
            elif before.siblings:
                raise InvalidInput(
                    "path", f"'{declaration.name}' is filled with {before.names}; drop them all"
                )
            else:
                is_automatic = before.has_auto_backfill or item.column.has_auto_backfill
                tx.derived.replace_function(
                    replace(item.column, column_id=before.column_id, has_auto_backfill=is_automatic)
                )

    def list_declared(self, caller: Caller, ident: TableIdent) -> Sequence[DeclaredColumn]:
        self._authorizer.require(caller, Permission.READ, ident)
        with self._store.transaction() as tx:
            table = tx.tables.get(ident)
            return [
                DeclaredColumn(table, column, tx.functions.get(column.function_digest))
                for column in tx.derived.list_columns(table.table_id)
            ]

    def forgetting(self, table: Table, names: Sequence[str]) -> TransactionEffect:
        """For the commit that drops columns: their declarations go with them."""
        with self._store.transaction() as tx:
            for name in names:
                column = tx.derived.find_column(table.table_id, name)
                missing = set() if column is None else set(column.names).difference(names)
                if missing:
                    raise InvalidInput(
                        "columns", f"'{name}' is filled together with {sorted(missing)}; drop them together"
                    )

        def forget(tx: JobTransaction, _: int) -> None:
            for name in names:
                tx.derived.remove_column(table.table_id, name)

        return forget

    def renaming(self, table: Table, new_names: Mapping[str, str]) -> TransactionEffect:
        """For the commit that renames columns: their declarations and bindings follow."""
        with self._store.transaction() as tx:
            for column in tx.derived.list_columns(table.table_id):
                read = sorted(set(column.inputs).intersection(new_names))
                is_text = tx.functions.get(column.function_digest).is_expression
                if read and is_text:
                    raise InvalidInput(
                        "rename", f"the expression of '{column.name}' reads {read}; drop it first"
                    )

        def rename(tx: JobTransaction, _: int) -> None:
            for name, new_name in new_names.items():
                tx.derived.rename_column(table.table_id, name, new_name)

        return rename

    def _writable(self, caller: Caller, ident: TableIdent) -> Table:
        self._authorizer.require(caller, Permission.WRITE, ident)
        self._authorizer.require(caller, Permission.FUNCTION, ident)
        with self._store.transaction() as tx:
            return tx.tables.get(ident)

    def _declared(self, table: Table, schema: pa.Schema, declaration: ColumnDeclaration) -> DeclaredColumn:
        function, inputs = self._bound(table, schema, declaration)
        name = declaration.name
        column = ComputedColumn(
            column_id=uuid4(),
            table_id=table.table_id,
            name=name,
            function_digest=function.digest,
            inputs=inputs,
            siblings=declaration.siblings,
            has_auto_backfill=declaration.has_auto_backfill,
        )
        if column.names[0] != name:
            raise InvalidInput("outputs", f"has to begin with the column '{name}'")
        return DeclaredColumn(table, column, function)

    def _bound(
        self, table: Table, schema: pa.Schema, declaration: ColumnDeclaration
    ) -> tuple[Function, tuple[str, ...]]:
        """The function, and the columns it reads."""
        if isinstance(declaration.function, Function):
            function = declaration.function
            if function.kind.makes_rows:
                raise InvalidInput(
                    "virtual_column.udf",
                    f"{function.name} is a {function.kind} function; a column needs one value per row",
                )
            field = "virtual_column.input_columns"
            return function, bind_inputs(table.ident, schema, function, declaration.inputs, field)
        text = declaration.function.text
        query = SourceQuery((), {declaration.name: text})
        value_type = self._sources.project(table, query, "computed").field(0).type
        read = self._sources.columns_read(table, query, (), None)
        return sql_function(text, value_type), tuple(name for name in read if name in schema.names)

    def _write_files(self, table: Table, declarations: Sequence[ColumnDeclaration]) -> None:
        for declaration in declarations:
            for path, content in declaration.files.items():
                self._files.write(self._files.key_of(f"{table.location}/{path}"), content)


def _fields(declared: DeclaredColumn, metadata: Mapping[str, Mapping[str, str]]) -> list[pa.Field]:
    column, value_type = declared.column, declared.function.value_type
    for name in column.names:
        if BLOB_MARK in metadata.get(name, {}):
            raise Unsupported(
                f"field_metadata: '{name}' cannot be a blob, because a function fills it; "
                f"without {BLOB_MARK} it holds the same bytes"
            )
    types = [value_type]
    if column.siblings:
        types = [_struct_type(declared.function, output) for output in column.siblings]
    return [
        pa.field(name, value, metadata=dict(metadata.get(name, {})) or None)
        for name, value in zip(column.names, types, strict=True)
    ]


def _struct_type(function: Function, output: ColumnOutput) -> pa.DataType:
    value_type = function.value_type
    if not pa.types.is_struct(value_type) or value_type.get_field_index(output.struct_field or "") < 0:
        raise InvalidInput(
            "outputs", f"{function.name} gives {value_type}, which has no field {output.struct_field!r:.60}"
        )
    return value_type.field(output.struct_field).type


def _check_names(table: Table, schema: pa.Schema, names: Sequence[str]) -> None:
    if not names:
        raise InvalidInput("new_columns", "is empty; name at least one column")
    for name in names:
        check_name(name, "name")
        if names.count(name) > 1:
            raise InvalidInput("new_columns", f"names '{name}' twice")
        if name in schema.names:
            raise InvalidInput("name", f"{table.ident} already has a column '{name}'")
