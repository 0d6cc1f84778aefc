"""Translates computed columns: envelopes, outputs and their types."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidemill.catalog.model.functions import (
    Function,
    FunctionKind,
    decode_base64,
    decode_envelope,
)
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.derived import ColumnOutput
from tidemill.jobs.service.columns import ColumnDeclaration, SqlExpression
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.lance.arrow_json import is_same_type
from tidemill.protocols.lance.geneva_mapping import GENEVA_BACKEND, geneva_column

BACKEND: Final = "tidemill"


def column_declarations(fields: Fields) -> tuple[ColumnDeclaration, ...]:
    entries = fields.objects("new_columns")
    if not entries:
        raise InvalidInput("new_columns", "is missing; it must list at least one column")
    return tuple(_column_declaration(entry) for entry in entries)


def _column_declaration(entry: Fields) -> ColumnDeclaration:
    name = entry.required_text("name")
    column = entry.nested("virtual_column")
    computed = entry.expression("computed")
    if computed is not None:
        if column is not None:
            raise InvalidInput(entry.name_of("computed"), "cannot be combined with virtual_column")
        return ColumnDeclaration(name, SqlExpression(computed))
    if column is None:
        raise InvalidInput(
            entry.name_of("virtual_column"), "is missing; it must contain the column's function"
        )
    if column.text("udf_backend") == GENEVA_BACKEND:
        return geneva_column(name, column)
    _require_backend(column)
    column.refuse_given("manifest", "manifest_checksum", "field_metadata")
    function = _function(column, "udf")
    if function.kind is FunctionKind.CHUNKER:
        raise InvalidInput(
            column.name_of("udf"), "is a chunker; a column needs a function that returns one value per row"
        )
    return ColumnDeclaration(
        name=name,
        function=function,
        inputs=column.texts("input_columns") or (),
        siblings=_siblings(column, name, function),
        has_auto_backfill=column.flag("auto_backfill") or False,
    )


def _siblings(column: Fields, name: str, function: Function) -> tuple[ColumnOutput, ...]:
    """The columns that get one field of a struct each; empty if the column gets the whole result."""
    outputs = column.objects("outputs")
    if outputs and outputs[0].required_text("column") != name:
        raise InvalidInput(outputs[0].name_of("column"), f"must be the name of the column, {name!r:.60}")
    value_type = function.value_type
    fields = [field.name for field in value_type] if pa.types.is_struct(value_type) else []
    is_unpacked = len(outputs) > 1 or any(output.text("struct_field") in fields for output in outputs)
    if not is_unpacked:
        for output in outputs:
            _check_type(output, value_type)
        return ()
    return tuple(_sibling(output, function) for output in outputs)


def _sibling(output: Fields, function: Function) -> ColumnOutput:
    field, value_type = output.required_text("struct_field"), function.value_type
    if not pa.types.is_struct(value_type) or value_type.get_field_index(field) < 0:
        raise InvalidInput(
            output.name_of("struct_field"),
            f"{function.name} returns {value_type}, which has no field {field!r:.60}",
        )
    _check_type(output, value_type.field(field).type)
    return ColumnOutput(output.required_text("column"), field)


def _check_type(output: Fields, value_type: pa.DataType) -> None:
    raw_type = output.raw("data_type")
    if raw_type is not None and not is_same_type(raw_type, value_type):
        problem = f"{raw_type!r:.80} differs from the type that the function returns, {value_type}"
        raise InvalidInput(output.name_of("data_type"), problem)


def _require_backend(column: Fields) -> None:
    backend = column.text("udf_backend")
    if backend is not None and backend != BACKEND:
        field = column.name_of("udf_backend")
        raise Unsupported(f"{field}: {backend!r:.60} is not supported; it must be {BACKEND!r}")


def _function(fields: Fields, key: str) -> Function:
    name = fields.name_of(key)
    return decode_envelope(decode_base64(fields.required_text(key), name), name)
