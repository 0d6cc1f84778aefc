"""Translates changes to columns: new columns, alterations, field metadata."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidemill.errors import InvalidInput
from tidemill.lance.field_paths import parse_path
from tidemill.lance.model.edits import ColumnAlteration, FieldMetadataUpdate, NewColumn, UpdatedFields
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.lance.arrow_types import parse_type

# Every Arrow stream starts with these bytes; JSON never does.
ARROW_START: Final = b"\xff\xff\xff\xff"
DECLARED: Final = ("computed", "virtual_column")


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
