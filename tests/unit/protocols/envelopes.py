"""Functions as clients send them."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import orjson
import pyarrow as pa

from tidemill.catalog.model.functions import Function, FunctionKind, encode_envelope

LENGTH = Function(
    name="length",
    digest="sha256:" + "0" * 64,
    kind=FunctionKind.SCALAR,
    parameters=("text",),
    output=pa.schema([pa.field("value", pa.list_(pa.float32(), 4))]),
    payload=b"code",
    python="3.11",
)
WORDS = Function(
    name="words",
    digest="sha256:" + "1" * 64,
    kind=FunctionKind.CHUNKER,
    parameters=("text",),
    output=pa.schema([pa.field("word", pa.string())]),
    payload=b"code",
    python="3.11",
)
VECTOR_TYPE = {
    "type": "fixed_size_list",
    "fields": [{"name": "element", "type": {"type": "float32"}, "nullable": True}],
    "length": 4,
}


def encoded(function: Function) -> str:
    return base64.b64encode(encode_envelope(function)).decode()


def virtual_column(function: Function = LENGTH, **changes: Any) -> dict[str, Any]:
    column = {
        "input_columns": ["text"],
        "outputs": [{"column": "size", "struct_field": "value", "data_type": VECTOR_TYPE, "nullable": True}],
        "image": "",
        "udf": encoded(function),
        "udf_name": function.name,
        "udf_version": function.digest,
        "udf_backend": "tidemill",
    }
    return {"new_columns": [{"name": "size", "virtual_column": column | changes}]}


def source_query(**changes: Any) -> str:
    query = {
        "format": "tidemill.query/1",
        "source": ["docs", "pages"],
        "columns": {"text": "text"},
        "filter": None,
    }
    return orjson.dumps(query | changes).decode()


def view(kind: str, **changes: Any) -> dict[str, Any]:
    schema = base64.b64encode(WORDS.output.serialize().to_pybytes()).decode()
    body: dict[str, Any] = {"kind": kind, "source_query": source_query(), "output_schema": schema}
    return body | changes


def udtf_spec(**changes: Any) -> dict[str, Any]:
    text = encoded(WORDS)
    spec: dict[str, Any] = {
        "kind": "chunker",
        "udtf": text,
        "udtf_sha": hashlib.sha256(text.encode()).hexdigest(),
        "udtf_name": WORDS.name,
        "udtf_version": WORDS.digest,
        "input_columns": None,
    }
    return spec | changes
