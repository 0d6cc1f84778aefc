"""Arrow schemas and types as JSON, read and written in both vocabularies that clients have."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import orjson
import pyarrow as pa

from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import without_nulls

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
MAX_BYTES: Final = 64 << 20


class Vocabulary(Enum):
    """NAMESPACE is the specification's; LANCE is what Lance itself and lancedb's remote client read."""

    NAMESPACE = "namespace"
    LANCE = "lance"


NAMESPACE_NAMES: Final[Mapping[str, str]] = {
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "string": "utf8",
    "large_string": "large_utf8",
}


def schema_json(schema: pa.Schema, vocabulary: Vocabulary) -> dict[str, Any]:
    fields = [_field(field, vocabulary) for field in schema]
    return without_nulls({"fields": fields, "metadata": metadata_json(schema.metadata)})


def type_json(data_type: pa.DataType, vocabulary: Vocabulary) -> dict[str, Any]:
    if isinstance(data_type, pa.BaseExtensionType):
        return type_json(data_type.storage_type, vocabulary)
    if pa.types.is_dictionary(data_type):
        return _dictionary(data_type, vocabulary)
    if pa.types.is_decimal(data_type):
        return _decimal(data_type, vocabulary)
    if pa.types.is_temporal(data_type):
        return {"type": _temporal(data_type, vocabulary)}
    if pa.types.is_fixed_size_binary(data_type):
        return {"type": "fixed_size_binary", "length": data_type.byte_width}
    if pa.types.is_nested(data_type):
        return _nested(data_type, vocabulary)
    return {"type": _plain(data_type, vocabulary)}


def metadata_json(metadata: Mapping[bytes, bytes] | None) -> dict[str, str] | None:
    if not metadata:
        return None
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in metadata.items()}


def is_same_type(raw_type: Any, data_type: pa.DataType) -> bool:
    """Whether a client's JSON is this type in either vocabulary, ignoring the names of list items."""
    client_type = {"type": raw_type} if isinstance(raw_type, str) else raw_type
    return any(
        _comparable(client_type) == _comparable(type_json(data_type, vocabulary)) for vocabulary in Vocabulary
    )


def _comparable(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fields = value.get("fields") or ()
    is_struct = value.get("type") == "struct"
    children = [
        (field.get("name") if is_struct else None, _comparable(field.get("type")))
        for field in fields
        if isinstance(field, dict)
    ]
    return value.get("type"), value.get("length"), children


def _field(field: pa.Field, vocabulary: Vocabulary) -> dict[str, Any]:
    return without_nulls(
        {
            "name": field.name,
            "type": type_json(field.type, vocabulary),
            "nullable": field.nullable,
            "metadata": metadata_json(field.metadata),
        }
    )


def _plain(data_type: pa.DataType, vocabulary: Vocabulary) -> str:
    name = str(data_type)
    return NAMESPACE_NAMES.get(name, name) if vocabulary is Vocabulary.NAMESPACE else name


def _temporal(data_type: pa.DataType, vocabulary: Vocabulary) -> str:
    """The names of the specification contain no units or time zones."""
    name = str(data_type).partition("[")[0]
    if vocabulary is Vocabulary.NAMESPACE:
        return name
    if pa.types.is_timestamp(data_type):
        return f"timestamp:{data_type.unit}:{data_type.tz or '-'}"
    if pa.types.is_date(data_type):
        return f"{name}:{'day' if pa.types.is_date32(data_type) else 'ms'}"
    return f"{name}:{data_type.unit}" if hasattr(data_type, "unit") else name


def _decimal(data_type: pa.DataType, vocabulary: Vocabulary) -> dict[str, Any]:
    width, precision, scale = data_type.bit_width, data_type.precision, data_type.scale
    if vocabulary is Vocabulary.LANCE:
        return {"type": f"decimal:{width}:{precision}:{scale}"}
    # The specification has one number beside the name: clients read it as precision * 1000 + scale.
    return {"type": f"decimal{width}", "length": precision * 1000 + scale}


def _dictionary(data_type: pa.DataType, vocabulary: Vocabulary) -> dict[str, Any]:
    if vocabulary is Vocabulary.NAMESPACE:
        return type_json(data_type.value_type, vocabulary)
    ordered = "true" if data_type.ordered else "false"
    return {"type": f"dict:{data_type.value_type}:{data_type.index_type}:{ordered}"}


def _nested(data_type: pa.DataType, vocabulary: Vocabulary) -> dict[str, Any]:
    name = str(data_type).partition("<")[0]
    if pa.types.is_map(data_type):
        entries = pa.field("entries", pa.struct([data_type.key_field, data_type.item_field]), nullable=False)
        return {"type": "map", "fields": [_field(entries, vocabulary)]}
    children = [_field(data_type.field(index), vocabulary) for index in range(data_type.num_fields)]
    if pa.types.is_fixed_size_list(data_type):
        return {"type": "fixed_size_list", "fields": children, "length": data_type.list_size}
    return {"type": name, "fields": children}


class RenderedSchemas:
    """Keyed by the identity of the schema, which the catalog caches. Evicts the oldest entries."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._rendered: dict[tuple[int, Vocabulary], tuple[pa.Schema, bytes]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def of(self, schema: pa.Schema, vocabulary: Vocabulary) -> orjson.Fragment:
        key = (id(schema), vocabulary)
        cached = self._rendered.get(key)
        # An entry keeps its schema alive, so no other schema can have the same identity.
        rendered = self._render(schema, vocabulary) if cached is None else cached[1]
        return orjson.Fragment(rendered)

    def _render(self, schema: pa.Schema, vocabulary: Vocabulary) -> bytes:
        rendered = orjson.dumps(schema_json(schema, vocabulary))
        with self._lock:
            if self._rendered.setdefault((id(schema), vocabulary), (schema, rendered))[1] is rendered:
                self._bytes += len(rendered)
            while self._bytes > self._max_bytes:
                _, oldest = self._rendered.pop(next(iter(self._rendered)))
                self._bytes -= len(oldest)
        return rendered


RENDERED: Final = RenderedSchemas()


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


def _read_decimal(entry: Mapping[str, Any], arguments: Sequence[str]) -> pa.DataType:
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


def _read_dictionary(_: Mapping[str, Any], arguments: Sequence[str]) -> pa.DataType:
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
    "decimal": _read_decimal,
    **{f"decimal{width}": _read_decimal for width in (32, 64, 128, 256)},
    "fixed_size_binary": _fixed_size_binary,
    "dict": _read_dictionary,
}
NESTED_TYPES: Final[Mapping[str, Nested]] = {
    "struct": _struct,
    "list": _list,
    "large_list": _large_list,
    "fixed_size_list": _fixed_size_list,
    "map": _map,
}
