"""Arrow types as the type JSON of Iceberg function metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyarrow import types

TypeJson: TypeAlias = str | dict[str, Any]

ANY_TYPE: Final = "unknown"
"""For types that Iceberg lacks, and for parameters, whose types only the function's code knows."""

SIMPLE: Final[Mapping[Callable[[pa.DataType], bool], str]] = {
    types.is_boolean: "boolean",
    types.is_uint64: "decimal(20,0)",
    types.is_int64: "long",
    types.is_uint32: "long",
    types.is_integer: "int",
    types.is_float64: "double",
    types.is_floating: "float",
    types.is_string: "string",
    types.is_large_string: "string",
    types.is_string_view: "string",
    types.is_binary: "binary",
    types.is_large_binary: "binary",
    types.is_binary_view: "binary",
    types.is_date: "date",
    types.is_time: "time",
}


def type_json(kind: pa.DataType) -> TypeJson:
    if isinstance(kind, pa.BaseExtensionType):
        return type_json(kind.storage_type)
    for matches, name in SIMPLE.items():
        if matches(kind):
            return name
    if types.is_dictionary(kind):
        return type_json(kind.value_type)
    if types.is_nested(kind):
        return _nested(kind)
    return _parametric(kind)


def struct_json(schema: pa.Schema) -> TypeJson:
    return {"type": "struct", "fields": [_field(schema.field(index)) for index in range(len(schema))]}


def _nested(kind: pa.DataType) -> TypeJson:
    if types.is_struct(kind):
        return {"type": "struct", "fields": [_field(kind.field(index)) for index in range(kind.num_fields)]}
    if types.is_map(kind):
        return {"type": "map", "key": type_json(kind.key_type), "value": type_json(kind.item_type)}
    if types.is_union(kind):
        return ANY_TYPE
    return {"type": "list", "element": type_json(kind.value_type)}


def _parametric(kind: pa.DataType) -> str:
    if types.is_timestamp(kind):
        return f"timestamp{'' if kind.tz is None else 'tz'}{'_ns' if kind.unit == 'ns' else ''}"
    if types.is_decimal(kind) and kind.precision <= 38 and kind.scale >= 0:
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    return ANY_TYPE


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": type_json(field.type)}
