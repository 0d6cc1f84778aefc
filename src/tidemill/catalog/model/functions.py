"""Functions as catalog objects: code, signature and digest, and the envelope they travel in."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from tidemill.errors import InvalidInput

ENVELOPE_FORMAT: Final = "tidemill.function/1"
DIGEST_PATTERN: Final = re.compile(r"sha256:[0-9a-f]{64}")
VALUE_FIELD: Final = "value"


class FunctionKind(StrEnum):
    """How a function is called: with one row's values, with Arrow arrays, with a batch, or to yield rows."""

    SCALAR = "scalar"
    ARRAYS = "arrays"
    BATCH = "batch"
    CHUNKER = "chunker"


@dataclass(frozen=True, slots=True)
class Function:
    """One version of a function. `output` has one field named `value`, or a chunker's columns."""

    name: str
    digest: str
    kind: FunctionKind
    parameters: tuple[str, ...]
    output: pa.Schema
    payload: bytes
    python: str
    is_stateful: bool = False
    source: str | None = None

    @property
    def value_type(self) -> pa.DataType:
        return self.output.field(VALUE_FIELD).type


def encode_envelope(function: Function) -> bytes:
    """The form a function has on the wire and at rest."""
    body = {
        "format": ENVELOPE_FORMAT,
        "name": function.name,
        "digest": function.digest,
        "kind": function.kind.value,
        "parameters": list(function.parameters),
        "output": base64.b64encode(function.output.serialize().to_pybytes()).decode(),
        "payload": base64.b64encode(function.payload).decode(),
        "python": function.python,
        "stateful": function.is_stateful,
        "source": function.source,
    }
    return json.dumps(body, sort_keys=True).encode()


def decode_envelope(raw: bytes, field: str) -> Function:
    """Reads an envelope; the payload stays unopened, because opening it would run it."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(field, f"is not a {ENVELOPE_FORMAT} envelope: not JSON ({error})") from error
    if not isinstance(body, dict) or body.get("format") != ENVELOPE_FORMAT:
        raise InvalidInput(field, f"is not a {ENVELOPE_FORMAT} envelope")
    digest = _text(body, "digest", field)
    if not DIGEST_PATTERN.fullmatch(digest):
        raise InvalidInput(f"{field}.digest", "has to be 'sha256:' and 64 hexadecimal digits")
    kind = _text(body, "kind", field)
    if kind not in set(FunctionKind):
        raise InvalidInput(f"{field}.kind", f"{kind!r} is none of {', '.join(FunctionKind)}")
    parameters = body.get("parameters")
    if not isinstance(parameters, list) or not all(isinstance(name, str) for name in parameters):
        raise InvalidInput(f"{field}.parameters", "has to be a list of names")
    source = body.get("source")
    return Function(
        name=_text(body, "name", field),
        digest=digest,
        kind=FunctionKind(kind),
        parameters=tuple(parameters),
        output=_output(body, FunctionKind(kind), field),
        payload=decode_base64(_text(body, "payload", field), f"{field}.payload"),
        python=_text(body, "python", field),
        is_stateful=bool(body.get("stateful", False)),
        source=source if isinstance(source, str) else None,
    )


def decode_base64(text: str, field: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(field, f"is not base64 ({error})") from error


def decode_schema(text: str, field: str) -> pa.Schema:
    """Reads a base64 Arrow IPC schema message."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(decode_base64(text, field)))
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(field, f"is not an Arrow IPC schema message ({error})") from error


def _output(body: Mapping[str, Any], kind: FunctionKind, field: str) -> pa.Schema:
    schema = decode_schema(_text(body, "output", field), f"{field}.output")
    if kind is not FunctionKind.CHUNKER and schema.names != [VALUE_FIELD]:
        raise InvalidInput(f"{field}.output", f"has to have one field named '{VALUE_FIELD}'")
    if kind is FunctionKind.CHUNKER and not schema.names:
        raise InvalidInput(f"{field}.output", "has to name the columns the chunker yields")
    return schema


def _text(body: Mapping[str, Any], key: str, field: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{field}.{key}", "is missing; it has to be a non-empty string")
    return value
