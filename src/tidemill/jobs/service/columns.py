"""Computed columns: declared with a function, filled by jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

import pyarrow as pa

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Function, FunctionKey, sql_function
from tidemill.catalog.model.identifiers import TableIdent, check_name
from tidemill.catalog.model.tables import Table
from tidemill.catalog.ports import Authorizer, TableFiles
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.columns import ColumnOutput, ComputedColumn, Keep, bind_inputs
from tidemill.jobs.model.coverage import top_level
from tidemill.jobs.model.views import SourceQuery
from tidemill.jobs.owners import OwnerRights
from tidemill.jobs.planning.bindings import ColumnBindings
from tidemill.jobs.planning.column_progress import DeclaredColumn
from tidemill.jobs.ports import JobStore, JobTransaction, TransactionEffect
from tidemill.jobs.service.unchanged_columns import check_still_there, check_unchanged, retry_changed
from tidemill.jobs.table_ports import SourceTables, TableData

# Column files cannot hold blobs: Lance writes those apart from the rows.
BLOB_MARK: Final = "lance-encoding:blob"


@dataclass(frozen=True)
class SqlExpression:
    """A function still without a type: the table says what type the expression has."""

    text: str


@dataclass(frozen=True)
class ColumnDeclaration:
    """A column to be filled by a function; no inputs means: the columns named like its parameters.

    The function is registered together with the column, in the namespace of the table, unless it has an
    `origin`: then it is, or was made from, that function.

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
    origin: FunctionKey | None = None


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
        self._bindings = ColumnBindings(store, sources)
        self._rights = OwnerRights(store, authorizer)

    def declare(self, caller: Caller, ident: TableIdent, declarations: Sequence[ColumnDeclaration]) -> int:
        """Adds all-null columns and remembers what fills them, in one commit; returns the new version."""
        return retry_changed(lambda: self._declare(caller, ident, declarations))

    def _declare(self, caller: Caller, ident: TableIdent, declarations: Sequence[ColumnDeclaration]) -> int:
        table = self._writable(caller, ident, declarations)
        schema = self._data.schema(table, None)
        declared = [self._declared(caller, table, schema, declaration) for declaration in declarations]
        _check_names([name for item in declared for name in item.column.names])
        self._check_new(table, schema, declared)
        fields = [
            field
            for declaration, item in zip(declarations, declared, strict=True)
            for field in _fields(item, declaration.metadata)
        ]
        self._data.check_types(table, fields)
        self._write_files(table, declarations)

        def remember(tx: JobTransaction, version: int) -> None:
            for item in declared:
                if item.column.bound_version < version - 1:
                    check_still_there(self._data, table, version - 1, _read_by(item, schema))
            # Whoever declares the same functions at this moment adds them in the same order.
            for item, declaration in sorted(
                zip(declared, declarations, strict=True),
                key=lambda pair: (pair[0].function.name, pair[0].function.digest),
            ):
                registered = _registered(tx, caller, item, declaration)
                for name in item.column.names:
                    # Left behind by a column of that name that somebody dropped.
                    tx.derived.remove_column(table.table_id, name)
                tx.derived.add_column(registered)

        version = self._data.add_empty_columns(table, fields, remember)
        # Records the fields that the new columns have become.
        self._bindings.columns_of(table)
        return version

    def alter(
        self, caller: Caller, ident: TableIdent, declaration: ColumnDeclaration, keep: Keep | None = None
    ) -> None:
        """Has another function fill a column from now on; its values stay until the next backfill.

        That backfill recomputes every row, or with `keep` those that have no value worth keeping.
        """
        retry_changed(lambda: self._alter(caller, ident, declaration, keep))

    def _alter(
        self, caller: Caller, ident: TableIdent, declaration: ColumnDeclaration, keep: Keep | None
    ) -> None:
        table = self._writable(caller, ident, [declaration])
        schema = self._data.schema(table, None)
        if declaration.name not in schema.names:
            raise TableColumnNotFound(ident, declaration.name, tuple(schema.names))
        known = pa.schema([field for field in schema if field.name != declaration.name])
        item = self._declared(caller, table, known, declaration)
        given = schema.field(declaration.name).type
        if item.column.siblings or not item.function.value_type.equals(given):
            raise InvalidInput(
                "virtual_column",
                f"'{declaration.name}' is {given} and {item.function.name} gives {item.function.value_type}; "
                "drop the column and add it again",
            )
        self._write_files(table, [declaration])
        self._bindings.columns_of(table)
        with self._store.transaction() as tx:
            tx.tables.lock(table)
            check_unchanged(tx, self._data, table, item.column.bound_version, _read_by(item, schema))
            column = _registered(tx, caller, item, declaration)
            before = tx.derived.find_column(table.table_id, declaration.name)
            if keep is not None:
                _check_keep(item, before)
            if before is None:
                tx.derived.add_column(column)
            elif before.siblings:
                raise InvalidInput(
                    "path", f"'{declaration.name}' is filled with {before.names}; drop them all"
                )
            else:
                tx.derived.replace_function(_succeeding(column, before, keep))
        self._bindings.columns_of(table)

    def list_declared(self, caller: Caller, ident: TableIdent) -> Sequence[DeclaredColumn]:
        self._authorizer.require(caller, Permission.READ, ident)
        with self._store.transaction() as tx:
            table = tx.tables.get(ident)
        return [
            DeclaredColumn(table, column, function) for column, function in self._bindings.columns_of(table)
        ]

    def forgetting(self, table: Table, names: Sequence[str]) -> TransactionEffect:
        """For the commit that drops columns: their declarations go with them."""
        self._bindings.columns_of(table)
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
        for column, function in self._bindings.columns_of(table):
            read = sorted(set(column.inputs).intersection(new_names))
            if read and function.is_expression:
                raise InvalidInput("rename", f"the expression of '{column.name}' reads {read}; drop it first")

        def rename(tx: JobTransaction, _: int) -> None:
            tx.derived.rename_columns(table.table_id, new_names)

        return rename

    def _writable(
        self, caller: Caller, ident: TableIdent, declarations: Sequence[ColumnDeclaration]
    ) -> Table:
        """The table, if the caller may add its columns and register or use their functions."""
        self._authorizer.require(caller, Permission.WRITE, ident)
        origins = [declaration.origin for declaration in declarations]
        if None in origins:
            self._authorizer.require(caller, Permission.FUNCTION, ident)
        for origin in origins:
            if origin is not None:
                self._rights.require_use(caller, origin)
        with self._store.transaction() as tx:
            return tx.tables.get(ident)

    def _check_new(self, table: Table, schema: pa.Schema, declared: Sequence[DeclaredColumn]) -> None:
        """Raises InvalidInput for a column that is there already; the message says what to do instead."""
        for item in declared:
            for name in item.column.names:
                if name in schema.names:
                    problem = f"{table.ident} already has a column '{name}'"
                    raise InvalidInput("name", f"{problem}{self._taken(table, name, item.function)}")

    def _taken(self, table: Table, name: str, wanted: Function) -> str:
        with self._store.reading() as tx:
            column = tx.derived.find_column(table.table_id, name)
            if column is None:
                return " that no function fills; choose another name, or drop the column first"
            filling = tx.functions.get(column.function_key)
        if filling.digest == wanted.digest:
            return (
                f', filled by this version of {filling.name}; call backfill("{name}") to compute its values'
            )
        if column.siblings:
            return f", filled by {filling.name} together with {list(column.names)}; drop them first"
        return f", filled by {filling.name} ({filling.digest:.15}); {_advice(name, wanted)}"

    def _declared(
        self, caller: Caller, table: Table, schema: pa.Schema, declaration: ColumnDeclaration
    ) -> DeclaredColumn:
        function, inputs = self._bound(table, schema, declaration)
        name, snapshot = declaration.name, self._sources.snapshot(table, None)
        column = ComputedColumn(
            column_id=uuid4(),
            table_id=table.table_id,
            name=name,
            function_digest=function.digest,
            inputs=inputs,
            siblings=declaration.siblings,
            has_auto_backfill=declaration.has_auto_backfill,
            field_ids={read: snapshot.field_ids[read] for read in inputs if read in snapshot.field_ids},
            bound_version=snapshot.version,
            owner=caller,
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


def _registered(
    tx: JobTransaction, caller: Caller, item: DeclaredColumn, declaration: ColumnDeclaration
) -> ComputedColumn:
    """The column with the function's place in the catalog, where it is registered unless it is there."""
    if declaration.origin is None:
        key = tx.functions.add(item.function, caller.principal, item.table.ident.namespace)
    else:
        key = tx.functions.add_bound(item.function, caller.principal, declaration.origin)
    return replace(item.column, function_namespace_id=key.namespace_id)


def _read_by(declared: DeclaredColumn, schema: pa.Schema) -> pa.Schema:
    """The columns that the function reads."""
    read = {top_level(name) for name in declared.column.inputs}
    return pa.schema([field for field in schema if field.name in read])


def _succeeding(column: ComputedColumn, before: ComputedColumn, keep: Keep | None) -> ComputedColumn:
    """The column in place of the one before; a function that comes back needs nobody to keep its values."""
    kept = () if keep is None else (before.function_digest, *before.kept_digests)
    return replace(
        column,
        column_id=before.column_id,
        has_auto_backfill=before.has_auto_backfill or column.has_auto_backfill,
        kept_digests=tuple(digest for digest in dict.fromkeys(kept) if digest != column.function_digest),
    )


def _check_keep(item: DeclaredColumn, before: ComputedColumn | None) -> None:
    name = item.column.name
    if before is None:
        raise InvalidInput(
            "keep", f"'{name}' is no computed column, so it has no computed values; leave it out"
        )
    if before.inputs != item.column.inputs:
        raise InvalidInput(
            "keep",
            f"the values of '{name}' were computed from ({', '.join(before.inputs)}), and "
            f"{item.function.name} reads ({', '.join(item.column.inputs)}); "
            "leave it out to recompute every row",
        )


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


def _advice(name: str, function: Function) -> str:
    """How a function comes to fill a column that is there already."""
    if function.is_expression:
        return "drop the column first"
    call = f'alter_column("{name}", {function.name}'
    return (
        f'call {call}, keep="computed") to keep the values computed so far, '
        f"or {call}) to recompute every row; or drop the column first"
    )


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise InvalidInput("new_columns", "is empty; name at least one column")
    for name in names:
        check_name(name, "name")
        if names.count(name) > 1:
            raise InvalidInput("new_columns", f"names '{name}' twice")
