"""Schemas: their columns, equality, fresh ids, the format version they need, and the updates of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.builders import SCHEMA, TableBuilder, set_current_id
from tidemill.iceberg.metadata.json_fields import (
    abbreviated,
    find_by_id,
    find_int,
    find_string,
    get_boolean,
    get_field,
    get_int,
    get_ints,
    get_list,
    get_object,
    get_string,
    id_of,
    next_id,
)
from tidemill.iceberg.metadata.types import DEFAULTS, Column, check_default, first_version, get_family
from tidemill.iceberg.model.entries import Document

_DEFAULTS_SINCE: Final = 3
_TYPE_KEYS: Final = frozenset({"type", "element", "key", "value"})


def same_schema(left: Document, right: Document) -> bool:
    """Compares fields and identifier fields, but not the schema's id."""
    return _comparable(left) == _comparable(right)


def stored_schema(schema: Document, schema_id: int) -> Document:
    """The schema as it is stored, with the assigned id."""
    return {"type": "struct", **schema, "schema-id": schema_id}


def get_columns(schema: Document, where: str) -> dict[int, Column]:
    """Validates the whole schema and returns its fields by id."""
    if schema.get("type", "struct") != "struct":
        raise InvalidMetadata(
            f"Cannot create schema, not a struct type: {where}: {abbreviated(schema['type'])}"
        )
    find_int(schema, "schema-id", where)
    columns: dict[int, Column] = {}
    names: dict[str, int] = {}
    for column in _walk(schema, where, None, ""):
        if column.field_id in columns:
            raise InvalidMetadata(
                f"Invalid schema: multiple fields for id {column.field_id}: "
                f"{columns[column.field_id].name} and {column.name}"
            )
        if column.name in names:
            raise InvalidMetadata(
                f"Invalid schema: multiple fields for name {column.name}: "
                f"{names[column.name]} and {column.field_id}"
            )
        columns[column.field_id] = column
        names[column.name] = column.field_id
    _check_identifiers(schema, columns, where)
    return columns


def check_version(columns: Mapping[int, Column], version: int) -> None:
    """Raises InvalidMetadata if the schema uses features that the format version lacks."""
    problems = [
        problem
        for _, column in sorted(columns.items())
        if (problem := _version_problem(column, version)) is not None
    ]
    if problems:
        raise InvalidMetadata(f"Invalid schema for v{version}:\n- " + "\n- ".join(problems))


def fresh_schema(schema: Document, next_id: Callable[[], int]) -> tuple[Document, dict[int, int]]:
    """The schema with fresh ids, and the map from old to fresh ids; a struct's fields precede nested ones."""
    fresh_ids: dict[int, int] = {}

    def renew(old: int) -> int:
        fresh_ids[old] = next_id()
        return fresh_ids[old]

    renewed = stored_schema(_fresh_struct(schema, renew), 0)
    if schema.get("identifier-field-ids"):
        renewed["identifier-field-ids"] = [fresh_ids[old] for old in schema["identifier-field-ids"]]
    return renewed, fresh_ids


def _comparable(schema: Document) -> dict[str, Any]:
    rest = {key: value for key, value in _normalized(schema).items() if key not in ("schema-id", "type")}
    rest["identifier-field-ids"] = frozenset(schema.get("identifier-field-ids") or ())
    return rest


def _normalized(value: Any) -> Any:
    """Treats null as absent, and `DECIMAL(9,2)` like `decimal(9, 2)`."""
    match value:
        case dict():
            return {
                key: _normalized_type(child)
                if key in _TYPE_KEYS and isinstance(child, str)
                else _normalized(child)
                for key, child in value.items()
                if child is not None
            }
        case list():
            return [_normalized(child) for child in value]
        case _:
            return value


def _normalized_type(name: str) -> str:
    # Names of coordinate systems are case-sensitive.
    return name.replace(" ", "") if "geo" in name.lower() else name.replace(" ", "").lower()


def _walk(struct: Document, where: str, parent: int | None, prefix: str) -> Iterator[Column]:
    fields = get_list(get_field(struct, "fields", where), f"{where}.fields")
    for index, raw in enumerate(fields):
        path = f"{where}.fields[{index}]"
        field = get_object(raw, path)
        column = Column(
            get_int(field, "id", path),
            prefix + get_string(field, "name", path),
            get_field(field, "type", path),
            get_boolean(field, "required", path),
            parent,
            field.get("initial-default") is not None,
        )
        find_string(field, "doc", path)
        yield from _with_children(column, f"{path}.type")
        _check_defaults(field, path)


def _check_defaults(field: Document, where: str) -> None:
    kind = field["type"]
    for key in DEFAULTS:
        if field.get(key) is not None:
            family = get_family(kind, where) if isinstance(kind, str) else None
            check_default(kind, family, field[key], f"{where}.{key}")


def _with_children(column: Column, where: str) -> Iterator[Column]:
    """The column, and the columns nested in its type."""
    match column.type:
        case str() as name:
            if get_family(name, where) == "unknown" and column.is_required:
                raise InvalidMetadata(f"Cannot create required field with unknown type: {column.name}")
            yield column
        case {"type": "struct"} as struct:
            yield column
            yield from _walk(struct, where, column.field_id, f"{column.name}.")
        case {"type": "list"} as nested:
            required = get_boolean(nested, "element-required", where)
            yield column
            yield from _with_children(_nested_column(column, "element", where, is_required=required), where)
        case {"type": "map"} as nested:
            required = get_boolean(nested, "value-required", where)
            yield column
            yield from _with_children(_nested_column(column, "key", where, is_required=True), where)
            yield from _with_children(_nested_column(column, "value", where, is_required=required), where)
        case other:
            raise InvalidMetadata(f"Cannot parse type from json: {where}: {abbreviated(other)}")


def _nested_column(column: Column, name: str, where: str, *, is_required: bool) -> Column:
    """The element of a list, or the key or value of a map, as a column."""
    part_id = get_int(column.type, f"{name}-id", where)
    part_type = get_field(column.type, name, where)
    return Column(part_id, f"{column.name}.{name}", part_type, is_required, column.field_id)


def _check_identifiers(schema: Document, columns: Mapping[int, Column], where: str) -> None:
    if schema.get("identifier-field-ids") is None:
        return
    for field_id in get_ints(schema, "identifier-field-ids", where):
        if field_id not in columns:
            raise InvalidMetadata(
                f"Cannot add fieldId {field_id} as an identifier field: field does not exist"
            )
        problem = _identifier_problem(columns[field_id], columns)
        if problem is not None:
            raise InvalidMetadata(
                f"Cannot add field {columns[field_id].name} as an identifier field: {problem}"
            )


def _identifier_problem(column: Column, columns: Mapping[int, Column]) -> str | None:
    if not column.is_primitive:
        return "not a primitive type field"
    if not column.is_required:
        return "not a required field"
    if column.type.lower() in ("float", "double"):
        return "must not be float or double field"
    parent = columns.get(column.parent) if column.parent is not None else None
    while parent is not None:
        if parent.kind != "struct":
            return f"must not be nested in {parent.name}"
        if not parent.is_required:
            return f"must not be nested in an optional field {parent.name}"
        parent = columns.get(parent.parent) if parent.parent is not None else None
    return None


def _version_problem(column: Column, version: int) -> str | None:
    since = first_version(get_family(column.type, column.name)) if isinstance(column.type, str) else 1
    if version < since:
        return f"Invalid type for {column.name}: {column.type} is not supported until v{since}"
    if column.has_default and version < _DEFAULTS_SINCE:
        return (
            f"Invalid initial default for {column.name}: "
            f"non-null default is not supported until v{_DEFAULTS_SINCE}"
        )
    return None


def _fresh_struct(struct: Document, renew: Callable[[int], int]) -> Document:
    ids = [renew(field["id"]) for field in struct["fields"]]
    fields = [
        {**field, "id": field_id, "type": _fresh_type(field["type"], renew)}
        for field_id, field in zip(ids, struct["fields"], strict=True)
    ]
    return {**struct, "fields": fields}


def _fresh_type(kind: Any, renew: Callable[[int], int]) -> Any:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return _fresh_struct(kind, renew)
    names = ("element",) if kind["type"] == "list" else ("key", "value")
    ids = {f"{name}-id": renew(kind[f"{name}-id"]) for name in names}
    return {**kind, **ids, **{name: _fresh_type(kind[name], renew) for name in names}}


def current_columns(builder: TableBuilder) -> dict[int, Column] | None:
    """Columns of the current schema; None before there is one."""
    schema = find_by_id(builder.document["schemas"], "schema-id", builder.document["current-schema-id"])
    return None if schema is None else get_columns(schema, "schemas")


def check_add_schema(update: Document, where: str) -> None:
    path = f"{where}.schema"
    get_columns(get_object(get_field(update, "schema", where), path), path)


def add_schema(builder: TableBuilder, update: Document) -> None:
    """Assigns the id; an identical existing schema counts as added, so a retry succeeds."""
    schema = update["schema"]
    columns = get_columns(schema, "schema")
    check_version(columns, builder.version)
    last_column_id = max(columns, default=0)
    if last_column_id > builder.document["last-column-id"]:
        builder.put("last-column-id", last_column_id)
    schemas = builder.document["schemas"]
    known = next((known for known in schemas if same_schema(known, schema)), None)
    if known is not None:
        builder.last_schema_id = id_of(known, "schema-id")
        return
    ids = [id_of(known, "schema-id") for known in schemas]
    builder.last_schema_id = next_id(ids, builder.document["current-schema-id"], "schema-id")
    builder.put("schemas", [*schemas, stored_schema(schema, builder.last_schema_id)])


def check_set_current_schema(update: Document, where: str) -> None:
    get_int(update, "schema-id", where)


def set_current_schema(builder: TableBuilder, update: Document) -> None:
    set_current_id(builder, SCHEMA, update["schema-id"], builder.last_schema_id)


def check_remove_schemas(update: Document, where: str) -> None:
    get_ints(update, "schema-ids", where)


def remove_schemas(builder: TableBuilder, update: Document) -> None:
    removed = set(update["schema-ids"])
    if builder.document["current-schema-id"] in removed:
        raise InvalidMetadata("Cannot remove the current schema")
    schemas = builder.document["schemas"]
    remaining = [schema for schema in schemas if id_of(schema, "schema-id") not in removed]
    if len(remaining) < len(schemas):
        builder.put("schemas", remaining)
