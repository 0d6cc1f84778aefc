"""Translates columns: new, altered and computed ones, and field metadata."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidemill.catalog.model.functions import (
    Function,
    FunctionKind,
    decode_base64,
    received_function,
)
from tidemill.catalog.model.json_values import read_choice
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.columns import ColumnOutput, Keep
from tidemill.jobs.service.columns import ColumnDeclaration, SqlExpression
from tidemill.lance.field_paths import parse_path
from tidemill.lance.model.edits import ColumnAlteration, FieldMetadataUpdate, NewColumn, UpdatedFields
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.lance.arrow_json import is_same_type, parse_type
from tidemill.protocols.lance.geneva_mapping import GENEVA_BACKEND, geneva_column

# Every Arrow stream starts with these bytes; JSON never does.
ARROW_START: Final = b"\xff\xff\xff\xff"
DECLARED: Final = ("computed", "virtual_column")
BACKEND: Final = "tidemill"


def is_expression_request(fields: Fields) -> bool:
    """Whether all columns are given by expressions; raises InvalidInput if the request mixes both kinds."""
    entries = fields.objects("new_columns")
    by_expression = [entry for entry in entries if entry.has("expression")]
    for entry in by_expression:
        for key in DECLARED:
            if entry.has(key):
                raise InvalidInput(entry.name_of("expression"), f"cannot be combined with {key}")
    if by_expression and len(by_expression) < len(entries):
        raise InvalidInput(
            "new_columns",
            "mixes columns filled now by an expression with columns filled by jobs; send two requests",
        )
    return bool(by_expression)


def new_columns(fields: Fields) -> tuple[NewColumn, ...]:
    return tuple(
        NewColumn(entry.required_text("name"), entry.expression("expression") or "")
        for entry in fields.objects("new_columns")
    )


def arrow_schema(body: bytes) -> pa.Schema:
    """lancedb's remote client sends the fields of empty columns as an Arrow stream."""
    try:
        return pa.ipc.open_stream(body).schema
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInput("body", f"is not an Arrow stream ({error})"[:300]) from error


def replaces_function(entry: Fields) -> bool:
    """Whether an alteration replaces the function of a column; raises InvalidInput if it changes more."""
    if not entry.has("virtual_column"):
        if entry.has("keep"):
            raise InvalidInput(entry.name_of("keep"), "needs virtual_column, the function to replace with")
        return False
    for key in ("rename", "nullable", "data_type"):
        if entry.has(key):
            raise InvalidInput(
                entry.name_of("virtual_column"), f"cannot be combined with {key}; send two requests"
            )
    return True


def replacement_declaration(fields: Fields) -> Fields:
    """Converts the new function of a column to a declaration; raises InvalidInput for several columns."""
    entries = fields.objects("alterations")
    if len(entries) > 1:
        raise InvalidInput("alterations", "replaces a function and changes more; send one request per column")
    path = parse_path(entries[0].required_text("path"), entries[0].name_of("path"))
    if len(path) > 1:
        raise InvalidInput(entries[0].name_of("path"), "is a nested field; functions fill whole columns")
    return Fields({"new_columns": [{"name": path[0], "virtual_column": entries[0].raw("virtual_column")}]})


def kept_values(fields: Fields) -> Keep | None:
    """Which computed values stay when a function is replaced; by default none."""
    entry = fields.objects("alterations")[0]
    keep = entry.text("keep")
    return None if keep is None else read_choice(Keep, keep, entry.name_of("keep"))


def column_alteration(entry: Fields) -> ColumnAlteration:
    data_type = entry.raw("data_type")
    return ColumnAlteration(
        path=entry.required_text("path"),
        rename=entry.text("rename"),
        nullable=entry.flag("nullable"),
        data_type=None if data_type is None else parse_type(data_type, entry.name_of("data_type")),
    )


def column_paths(fields: Fields) -> tuple[str, ...]:
    paths = fields.texts("columns") or ()
    if not all(paths):
        raise InvalidInput("columns", "contains an empty path")
    return paths


def field_metadata_update(entry: Fields) -> FieldMetadataUpdate:
    name, values = entry.name_of("metadata"), entry.raw("metadata")
    if not isinstance(values, dict):
        raise InvalidInput(name, "is missing; it must be an object of strings, or null to delete a key")
    for key, value in values.items():
        if value is not None and not isinstance(value, str):
            raise InvalidInput(f"{name}.{key}"[:200], f"must be a string or null, not {value!r:.60}")
        if "\x00" in key or "\x00" in (value or ""):
            raise InvalidInput(f"{name}.{key!r}"[:200], "contains a NUL character")
    return FieldMetadataUpdate(entry.required_text("path"), values, entry.flag("replace") or False)


def updated_fields_json(updated: UpdatedFields) -> dict[str, object]:
    fields = {path: dict(metadata) for path, metadata in updated.fields.items()}
    return {"version": updated.version, "fields": fields}


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
    return received_function(decode_base64(fields.required_text(key), name), name)
