"""Reads Arrow types from JSON, in both vocabularies that clients write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from tidemill.errors import InvalidInput

MAX_DEPTH: Final = 20
MAX_LENGTH: Final = 2**31 - 1

PLAIN_TYPES: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "boolean": pa.bool_(),
    **{
        f"{sign}int{width}": getattr(pa, f"{sign}int{width}")()
        for sign in ("", "u")
        for width in (8, 16, 32, 64)
    },
    "halffloat": pa.float16(),
    "float16": pa.float16(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "utf8": pa.string(),
    "large_string": pa.large_string(),
    "large_utf8": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "date32": pa.date32(),
    "date32:day": pa.date32(),
    "date64": pa.date64(),
    "date64:ms": pa.date64(),
    # The names of the specification have no unit; Lance's own tools use microseconds then.
    "timestamp": pa.timestamp("us"),
    "duration": pa.duration("us"),
    "time32": pa.time32("ms"),
    "time64": pa.time64("us"),
}


def parse_type(raw_type: Any, field: str, depth: int = 0) -> pa.DataType:
    """Reads a type from a JSON object or a bare name; raises InvalidInput."""
    if depth > MAX_DEPTH:
        raise InvalidInput(field, f"is nested more than {MAX_DEPTH} levels deep")
    entry = {"type": raw_type} if isinstance(raw_type, str) else raw_type
    if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
        raise InvalidInput(field, 'must be a type as JSON, such as {"type": "int64"}')
    name = entry["type"]
    if name in PLAIN_TYPES:
        return PLAIN_TYPES[name]
    family, *arguments = name.split(":")
    try:
        if family in NESTED_TYPES:
            return NESTED_TYPES[family](entry, arguments, field, depth)
        if family in PARAMETRIC_TYPES:
            return PARAMETRIC_TYPES[family](entry, arguments)
    except (ValueError, TypeError, KeyError, IndexError, pa.ArrowException) as error:
        raise InvalidInput(field, f"{name!r:.80} is incomplete or invalid ({error})"[:300]) from error
    raise InvalidInput(field, f"{name!r:.80} is not a known type")


def _timestamp(_: Mapping[str, Any], arguments: Sequence[str]) -> pa.DataType:
    unit, *zone = arguments
    name = ":".join(zone)
    return pa.timestamp(unit, None if name in ("", "-") else name)


def _decimal(entry: Mapping[str, Any], arguments: Sequence[str]) -> pa.DataType:
    """`decimal:128:10:2`, or `decimal128` with precision * 1000 + scale as its length."""
    if arguments:
        width, precision, scale = (int(argument) for argument in arguments)
    else:
        width = int(entry["type"].removeprefix("decimal"))
        precision, scale = divmod(int(entry["length"]), 1000)
    make = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}[width]
    return make(precision, scale)


def _fixed_size_binary(entry: Mapping[str, Any], arguments: Sequence[str]) -> pa.DataType:
    return pa.binary(_length(arguments[-1] if arguments else entry["length"]))


def _dictionary(_: Mapping[str, Any], arguments: Sequence[str]) -> pa.DataType:
    value, index, ordered = arguments
    return pa.dictionary(PLAIN_TYPES[index], PLAIN_TYPES[value], ordered=ordered == "true")


def _struct(entry: Mapping[str, Any], _: Sequence[str], field: str, depth: int) -> pa.DataType:
    return pa.struct(_fields(entry, field, depth))


def _list(entry: Mapping[str, Any], _: Sequence[str], field: str, depth: int) -> pa.DataType:
    (item,) = _fields(entry, field, depth)
    return pa.list_(item)


def _large_list(entry: Mapping[str, Any], _: Sequence[str], field: str, depth: int) -> pa.DataType:
    (item,) = _fields(entry, field, depth)
    return pa.large_list(item)


def _fixed_size_list(
    entry: Mapping[str, Any], arguments: Sequence[str], field: str, depth: int
) -> pa.DataType:
    """Written with its item as a field and its length, or as `fixed_size_list:float:16`."""
    if arguments:
        *item, length = arguments
        return pa.list_(parse_type(":".join(item), field, depth + 1), _length(length))
    (item_field,) = _fields(entry, field, depth)
    return pa.list_(item_field, _length(entry["length"]))


def _map(entry: Mapping[str, Any], _: Sequence[str], field: str, depth: int) -> pa.DataType:
    (entries,) = _fields(entry, field, depth)
    return pa.map_(entries.type.field(0), entries.type.field(1))


def _fields(entry: Mapping[str, Any], field: str, depth: int) -> list[pa.Field]:
    children = entry.get("fields")
    if not isinstance(children, list) or not all(isinstance(child, dict) for child in children):
        raise InvalidInput(field, f"{entry['type']!r:.60} needs its fields as a list of objects")
    return [
        pa.field(
            str(child["name"]),
            parse_type(child.get("type"), field, depth + 1),
            nullable=child.get("nullable") is not False,
            metadata=child.get("metadata") or None,
        )
        for child in children
    ]


def _length(value: Any) -> int:
    length = int(value)
    if not 0 < length <= MAX_LENGTH:
        raise ValueError(f"a length of {length}")
    return length


Parametric = Callable[[Mapping[str, Any], Sequence[str]], pa.DataType]
Nested = Callable[[Mapping[str, Any], Sequence[str], str, int], pa.DataType]

PARAMETRIC_TYPES: Final[Mapping[str, Parametric]] = {
    "timestamp": _timestamp,
    "duration": lambda _, arguments: pa.duration(*arguments),
    "time32": lambda _, arguments: pa.time32(*arguments),
    "time64": lambda _, arguments: pa.time64(*arguments),
    "decimal": _decimal,
    **{f"decimal{width}": _decimal for width in (32, 64, 128, 256)},
    "fixed_size_binary": _fixed_size_binary,
    "dict": _dictionary,
}
NESTED_TYPES: Final[Mapping[str, Nested]] = {
    "struct": _struct,
    "list": _list,
    "large_list": _large_list,
    "fixed_size_list": _fixed_size_list,
    "map": _map,
}
