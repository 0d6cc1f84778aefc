"""Writes Arrow schemas as JSON, in both vocabularies that clients read, and caches what was rendered."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import orjson
import pyarrow as pa

from tidemill.protocols.http.responses import without_nulls


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


MAX_BYTES: Final = 64 << 20


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
