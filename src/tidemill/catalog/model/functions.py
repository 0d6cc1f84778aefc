"""Functions as catalog objects: code, signature, digest, envelope, environments; and their secrets."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from tidemill.catalog.model.identifiers import (
    ROOT_NAMESPACE,
    ROOT_NAMESPACE_ID,
    FunctionIdent,
    NamespacePath,
    TableIdent,
)
from tidemill.errors import InvalidInput

ENVELOPE_FORMAT: Final = "tidemill.function/1"
DIGEST_PATTERN: Final = re.compile(r"sha256:[0-9a-f]{64}")
EMPTY_DIGEST: Final = f"sha256:{'0' * 64}"
VALUE_FIELD: Final = "value"


class FunctionKind(StrEnum):
    """How a function is called: with the values of a row, with Arrow arrays, with a batch, or to yield rows.

    VALUES also returns one value per row; only its code says which of the first three it is.
    """

    SCALAR = "scalar"
    ARRAYS = "arrays"
    BATCH = "batch"
    VALUES = "values"
    CHUNKER = "chunker"
    TABLE = "table"

    @property
    def makes_rows(self) -> bool:
        """Whether it yields rows of its own instead of one value per input row."""
        return self in {FunctionKind.CHUNKER, FunctionKind.TABLE}


class FunctionEncoding(StrEnum):
    """The form of a function's payload.

    TIDEMILL: a cloudpickle of the callable. GENEVA: the JSON that a Geneva client sends, with a pickle of its
    own classes inside. SOURCE: Python text that defines `entrypoint`. SQL: an expression over the row.
    """

    TIDEMILL = "tidemill"
    GENEVA = "geneva"
    SOURCE = "source"
    SQL = "sql"


@dataclass(frozen=True, slots=True)
class Function:
    """One version of a function. `output` has one field named `value`, or the columns of the rows it yields.

    Without `parameters` a function takes whatever columns it is bound to. `arguments` are passed to the class
    of a SOURCE function when it is created. `declared` holds further information from the client, in the
    client's own format. `timeout_seconds`, if set, limits each call. `blob_parameters` are passed as files to
    read from, not as bytes.
    """

    name: str
    digest: str
    kind: FunctionKind
    parameters: tuple[str, ...]
    output: pa.Schema
    payload: bytes
    python: str
    is_stateful: bool = False
    source: str | None = None
    encoding: FunctionEncoding = FunctionEncoding.TIDEMILL
    entrypoint: str | None = None
    requirements: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    declared: Mapping[str, Any] = field(default_factory=dict)
    timeout_seconds: float | None = None
    blob_parameters: tuple[str, ...] = ()

    @property
    def value_type(self) -> pa.DataType:
        return self.output.field(VALUE_FIELD).type

    @property
    def is_expression(self) -> bool:
        """Whether the Lance scan evaluates it, instead of Python."""
        return self.encoding is FunctionEncoding.SQL


@dataclass(frozen=True, slots=True)
class FunctionKey:
    """Where a function version is registered, and its digest there.

    A digest alone is no identity: only the client that makes a pickle can compute it, and whoever knows a
    digest could register other code under it. So a digest counts within its namespace, whose teams trust each
    other's code, and the same digest in another namespace is another function.
    """

    namespace_id: UUID
    digest: str


@dataclass(frozen=True, slots=True)
class RegisteredFunction:
    """A function in the catalog. Versions of a name count from 1 in each namespace.

    `namespace` is None if it was dropped; columns and views that use the function keep it.
    """

    function: Function
    version: int
    registered_by: str
    registered_at: datetime
    namespace_id: UUID = ROOT_NAMESPACE_ID
    namespace: NamespacePath | None = ROOT_NAMESPACE

    @property
    def key(self) -> FunctionKey:
        return FunctionKey(self.namespace_id, self.function.digest)

    @property
    def ident(self) -> FunctionIdent | None:
        return None if self.namespace is None else function_ident(self.namespace, self.function.name)


def function_ident(namespace: NamespacePath, name: str) -> FunctionIdent:
    """What grants call a function. lancedb's have the levels of their namespace in their name.

    One that is bound with arguments, `name(argument=value)`, counts as the function that it is made from.
    """
    prefix = "".join(f"{level}$" for level in namespace.levels)
    return FunctionIdent(namespace, name.removeprefix(prefix).partition("(")[0] or name)


def geneva_function(name: str, kind: FunctionKind, envelope: bytes, output: pa.Schema) -> Function:
    """A function from the JSON that a Geneva client sends: VALUES, CHUNKER or TABLE."""
    return _with_digest(
        Function(
            name=name,
            digest=EMPTY_DIGEST,
            kind=kind,
            parameters=(),
            output=output,
            payload=envelope,
            python="",
            encoding=FunctionEncoding.GENEVA,
        )
    )


def source_function(
    entrypoint: str,
    source: str,
    parameters: Sequence[str],
    value_type: pa.DataType,
    *,
    name: str,
    python: str,
    requirements: Sequence[str] = (),
    arguments: Mapping[str, Any] | None = None,
    kind: FunctionKind = FunctionKind.SCALAR,
    declared: Mapping[str, Any] | None = None,
) -> Function:
    """A function of row values or arrays, or a class with such a function, given as Python source."""
    return _with_digest(
        Function(
            name=name,
            digest=EMPTY_DIGEST,
            kind=kind,
            parameters=tuple(parameters),
            output=value_output(value_type),
            payload=source.encode(),
            python=python,
            source=source,
            encoding=FunctionEncoding.SOURCE,
            entrypoint=entrypoint,
            requirements=tuple(requirements),
            arguments=dict(arguments or {}),
            declared=dict(declared or {}),
        )
    )


def sql_function(expression: str, value_type: pa.DataType) -> Function:
    return _with_digest(
        Function(
            name=expression,
            digest=EMPTY_DIGEST,
            kind=FunctionKind.ARRAYS,
            parameters=(),
            output=value_output(value_type),
            payload=expression.encode(),
            python="",
            source=expression,
            encoding=FunctionEncoding.SQL,
        )
    )


def value_output(value_type: pa.DataType) -> pa.Schema:
    """The output of a function that returns one value of this type per row."""
    return pa.schema([pa.field(VALUE_FIELD, value_type)])


def encode_envelope(function: Function) -> bytes:
    """The form of a function on the wire and in the database."""
    body: dict[str, Any] = {
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
        "encoding": function.encoding.value,
        "entrypoint": function.entrypoint,
        "requirements": list(function.requirements),
        "arguments": dict(function.arguments),
    }
    if function.declared:
        body["declared"] = dict(function.declared)
    if function.timeout_seconds is not None:
        body["timeout"] = function.timeout_seconds
    if function.blob_parameters:
        body["blobs"] = list(function.blob_parameters)
    return json.dumps(body, sort_keys=True).encode()


def received_function(raw: bytes, field: str) -> Function:
    """Reads an envelope from a client, and checks its digest as far as this is possible without running code.

    That of Python source, an SQL expression or a Geneva envelope is a hash of what was received. That of a
    pickle is computed by the SDK from the code, which has many pickles; see `FunctionKey`.
    """
    function = decode_envelope(raw, field)
    if function.encoding is FunctionEncoding.TIDEMILL:
        return function
    computed = _with_digest(replace(function, digest=EMPTY_DIGEST, timeout_seconds=None)).digest
    if computed != function.digest:
        raise InvalidInput(f"{field}.digest", f"is not the digest of this function, which is {computed}")
    return function


def check_same_function(registered: Function, sent: Function) -> None:
    """Raises InvalidInput for what is declared otherwise under a known digest, which covers all of it."""
    declared, asked = (
        {
            "encoding": function.encoding,
            "kind": function.kind,
            "parameters": function.parameters,
            "output": function.output,
            "python": function.python,
            "requirements": sorted(function.requirements),
        }
        for function in (registered, sent)
    )
    differing = [name for name, value in declared.items() if value != asked[name]]
    if differing:
        raise InvalidInput(
            "digest", f"is that of a function of this namespace with another {', '.join(differing)}"
        )


def decode_envelope(raw: bytes, field: str) -> Function:
    """Reads an envelope. It never unpickles the payload: that would run code."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(field, f"is not a {ENVELOPE_FORMAT} envelope: not JSON ({error})") from error
    if not isinstance(body, dict) or body.get("format") != ENVELOPE_FORMAT:
        raise InvalidInput(field, f"is not a {ENVELOPE_FORMAT} envelope")
    digest = _text(body, "digest", field)
    if not DIGEST_PATTERN.fullmatch(digest):
        raise InvalidInput(f"{field}.digest", "must be 'sha256:' and 64 hexadecimal digits")
    kind = _text(body, "kind", field)
    if kind not in set(FunctionKind):
        raise InvalidInput(f"{field}.kind", f"must be one of {', '.join(FunctionKind)}, not {kind!r}")
    encoding = body.get("encoding", FunctionEncoding.TIDEMILL.value)
    if encoding not in set(FunctionEncoding):
        raise InvalidInput(
            f"{field}.encoding", f"must be one of {', '.join(FunctionEncoding)}, not {encoding!r:.60}"
        )
    source = body.get("source")
    return Function(
        name=_text(body, "name", field),
        digest=digest,
        kind=FunctionKind(kind),
        parameters=_texts(body, "parameters", field),
        output=_output(body, FunctionKind(kind), field),
        payload=decode_base64(_text(body, "payload", field), f"{field}.payload"),
        python=_python(body, FunctionEncoding(encoding), field),
        is_stateful=bool(body.get("stateful", False)),
        source=source if isinstance(source, str) else None,
        encoding=FunctionEncoding(encoding),
        entrypoint=body.get("entrypoint"),
        requirements=_texts(body, "requirements", field) if "requirements" in body else (),
        arguments=body.get("arguments") or {},
        declared=body.get("declared") or {},
        timeout_seconds=_timeout(body, field),
        blob_parameters=_texts(body, "blobs", field) if "blobs" in body else (),
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
    if not kind.makes_rows and schema.names != [VALUE_FIELD]:
        raise InvalidInput(f"{field}.output", f"must have one field named '{VALUE_FIELD}'")
    if kind.makes_rows and not schema.names:
        raise InvalidInput(f"{field}.output", f"must name the columns the {kind} yields")
    return schema


def _python(body: Mapping[str, Any], encoding: FunctionEncoding, field: str) -> str:
    """Geneva's clients do not send their Python version, and an SQL expression has none."""
    if encoding in {FunctionEncoding.GENEVA, FunctionEncoding.SQL}:
        return ""
    return _text(body, "python", field)


def _timeout(body: Mapping[str, Any], field: str) -> float | None:
    value = body.get("timeout")
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value < math.inf:
        raise InvalidInput(f"{field}.timeout", "must be a number of seconds greater than 0")
    return float(value)


def _texts(body: Mapping[str, Any], key: str, field: str) -> tuple[str, ...]:
    values = body.get(key)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InvalidInput(f"{field}.{key}", "must be a list of strings")
    return tuple(values)


def _with_digest(function: Function) -> Function:
    """Sets the digest, which covers the name and everything that determines the result."""
    return replace(function, digest=f"sha256:{hashlib.sha256(encode_envelope(function)).hexdigest()}")


def _text(body: Mapping[str, Any], key: str, field: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{field}.{key}", "is missing; it must be a non-empty string")
    return value


@dataclass(frozen=True)
class Environment:
    """Packages to install, in pip's notation, and variables to set. Empty: the environment of the worker.

    Values of variables are sealed until a task needs them: see `tidemill.catalog.sealed_variables`.
    """

    packages: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_empty(self) -> bool:
        return not self.packages and not self.variables

    @property
    def packages_digest(self) -> str:
        """Identifies an installation, so the same packages are installed only once."""
        return hashlib.sha256(json.dumps(sorted(self.packages)).encode()).hexdigest()


OWN_ENVIRONMENT: Final = Environment()


MAX_SECRET_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Secret:
    """The visible part of a secret: everything but its value."""

    ident: TableIdent
    created_at: datetime
    updated_at: datetime


def checked_value(value: str) -> bytes:
    """Checks a value. Error messages do not show it."""
    raw = value.encode(errors="replace")
    if not raw:
        raise InvalidInput("value", "is empty; a secret needs a value")
    if len(raw) > MAX_SECRET_BYTES:
        raise InvalidInput("value", f"is longer than {MAX_SECRET_BYTES:,} bytes")
    return raw
