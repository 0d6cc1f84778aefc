"""Views as our own SDK's requests define them."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidemill.catalog.model.functions import Function, FunctionKind, encode_envelope

LENGTH = Function(
    name="length",
    digest="sha256:" + "a" * 64,
    kind=FunctionKind.SCALAR,
    parameters=("text",),
    output=pa.schema([pa.field("value", pa.int64())]),
    payload=b"never opened",
    python="3.11",
)
WORDS = replace(
    LENGTH,
    name="words",
    digest="sha256:" + "b" * 64,
    kind=FunctionKind.CHUNKER,
    output=pa.schema([pa.field("word", pa.string())]),
)
COUNTS = replace(
    LENGTH,
    name="counts",
    digest="sha256:" + "c" * 64,
    kind=FunctionKind.TABLE,
    parameters=(),
    output=pa.schema([pa.field("text", pa.string()), pa.field("n", pa.int64())]),
)
SOURCE_ROW = pa.field("__source_row_id", pa.int64(), nullable=False)
KEY = pa.field("__key", pa.int64(), nullable=False)
ID = pa.field("id", pa.int64())


def encoded(envelope: bytes) -> str:
    return base64.b64encode(envelope).decode()


def function_text(function: Function) -> str:
    return encoded(encode_envelope(function))


def schema_text(*fields: pa.Field) -> str:
    return encoded(pa.schema(fields).serialize().to_pybytes())


def query(*source: str, **changes: Any) -> str:
    body = {"format": "tidemill.query/1", "source": list(source), "columns": {"id": "id"}, "filter": None}
    return json.dumps(body | changes)


def view(source_query: str, **changes: Any) -> dict[str, Any]:
    """The body of a plain view's creation."""
    body = {
        "kind": "query",
        "source_query": source_query,
        "output_schema": schema_text(SOURCE_ROW, ID),
        "udtf_spec": None,
    }
    return body | changes


def spec(function: Function, kind: str, **changes: Any) -> dict[str, Any]:
    text = function_text(function)
    own = {"kind": kind, "udtf": text, "udtf_sha": hashlib.sha256(text.encode()).hexdigest()}
    return own | changes


def table_view(source_query: str, *fields: pa.Field, **changes: Any) -> dict[str, Any]:
    """The body of the creation of a view that a table function makes; `changes` are those of its spec."""
    output = fields or tuple(COUNTS.output)
    return view(
        source_query,
        kind="udtf",
        output_schema=schema_text(*output),
        udtf_spec=spec(COUNTS, "udtf", **changes),
    )
