"""Translates lancedb's functions: registrations, versions and types for its client, bound columns."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa

from tidemill.catalog.model.functions import (
    Function,
    FunctionEncoding,
    FunctionKind,
    RegisteredFunction,
    decode_base64,
    source_function,
)
from tidemill.catalog.model.identifiers import TableIdent, namespace_path
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.columns import ColumnOutput
from tidemill.jobs.service.columns import ColumnDeclaration
from tidemill.protocols.http.fields import DEFAULT_DELIMITER, Fields
from tidemill.protocols.lance.arrow_json import PLAIN_TYPES, parse_type

REGISTRATION: Final = "lancedb"
JOB_PREFIX: Final = "function-"
WHOLE_RESULT: Final = "$value"
ADAPTER: Final = "scalar_to_arrow_batch"
NAMED_STRUCT: Final = "named_struct"
LISTS: Final = re.compile(r"(?P<family>list|large_list|fixed_size_list)<(?P<inside>.*)>")
SIZED: Final = re.compile(r"(?P<item>.+),\s*(?P<length>[0-9]{1,10})")
BLOB: Final = "blob_v2"
MAX_DEPTH: Final = 20


def registration(ident: TableIdent, body: Fields) -> Function:
    """The function in a registration request; raises Unsupported for what we could not run."""
    runtime = _required_object(body, "runtime")
    signature = _required_object(body, "signature")
    requirements = _requirements(runtime)
    if body.objects("secret_bindings"):
        raise Unsupported("secret_bindings: secrets cannot be passed to functions yet; leave them out")
    source, entrypoint = _source(_required_object(body, "artifact"))
    return source_function(
        entrypoint,
        source,
        [entry.required_text("name") for entry in signature.objects("inputs")],
        _output_type(_required_object(signature, "output")),
        name=stored_name(ident),
        python=runtime.required_text("python_version"),
        requirements=requirements,
        kind=_call_kind(source, entrypoint),
        declared={REGISTRATION: {"signature": _checked_signature(signature)}},
    )


def stored_name(ident: TableIdent) -> str:
    """The name in our catalog. lancedb's names never contain the delimiter."""
    return DEFAULT_DELIMITER.join(ident.levels)


def is_registration(function: Function) -> bool:
    return function.encoding is FunctionEncoding.SOURCE and REGISTRATION in function.declared


def version_json(registered: RegisteredFunction) -> dict[str, Any]:
    """We build no images: the digest of the code takes the place of the image digest."""
    function = registered.function
    *namespace, name = function.name.split(DEFAULT_DELIMITER)
    return {
        "name": name,
        "namespace_path": namespace,
        "object_id": function.digest,
        "location": f"functions/{function.digest}",
        "version": str(registered.version),
        "image": {"manifest_digest": function.digest, "descriptor": {}, "source": False},
        "signature": function.declared[REGISTRATION]["signature"],
        "created_at": registered.registered_at.isoformat(),
        "metadata": {},
        "disabled": False,
    }


def version_number(text: str, field: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < len(text) <= 18:
        raise InvalidInput(field, f"{text!r:.60} is not a function version, such as '1'")
    return int(text)


def job_id_of(function: Function) -> str:
    """The id of the job that lancedb's client waits for. Registration is immediate, so the id says it all."""
    return f"{JOB_PREFIX}{function.digest.removeprefix('sha256:')}"


def registered_by_job(job_id: str) -> str | None:
    """The digest of the function that the job registered."""
    return f"sha256:{job_id.removeprefix(JOB_PREFIX)}" if job_id.startswith(JOB_PREFIX) else None


def registration_job_json(job_id: str, registered: RegisteredFunction) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "job_type": "register_function",
        "job_state": "DONE",
        "creation_ms": int(registered.registered_at.timestamp() * 1000),
        "spec": {"function": registered.function.name},
        "result": version_json(registered),
    }


def function_reference(fields: Fields) -> tuple[TableIdent, int, str]:
    """Name, version and object id of the function that the new columns are bound to."""
    reference = _required_object(_required_object(fields, "function"), "application").nested("function")
    if reference is None:
        raise InvalidInput("function.application.function", "is missing; it must name a function")
    namespace = namespace_path(reference.texts("namespace_path") or ())
    ident = TableIdent(namespace, reference.required_text("name"))
    version = version_number(reference.required_text("version"), reference.name_of("version"))
    return ident, version, reference.required_text("object_id")


def bound_columns(fields: Fields, registered: RegisteredFunction) -> ColumnDeclaration:
    """The columns that one application of a function fills together."""
    binding = _required_object(fields, "function")
    application = _required_object(binding, "application")
    function = registered.function
    outputs = _outputs(binding, fields)
    return ColumnDeclaration(
        name=outputs[0].name,
        function=_with_arguments(function, application),
        origin=registered.key,
        inputs=_inputs(function, application),
        siblings=() if outputs[0].struct_field is None else outputs,
    )


def _inputs(function: Function, application: Fields) -> tuple[str, ...]:
    """The input columns in the order of the parameters."""
    columns: dict[str, str] = {}
    for entry in application.objects("inputs"):
        if entry.text("kind") != "column":
            raise Unsupported(
                f"{entry.name_of('kind')}: {entry.raw('kind')!r:.60}; only columns are supported"
            )
        columns[entry.required_text("parameter")] = _required_object(entry, "value").required_text("path")
    if columns.keys() != set(function.parameters):
        raise InvalidInput(
            application.name_of("inputs"),
            f"gives {sorted(columns)}, but {function.name} takes {list(function.parameters)}",
        )
    return tuple(columns[name] for name in function.parameters)


def _outputs(binding: Fields, fields: Fields) -> tuple[ColumnOutput, ...]:
    entries = sorted(binding.objects("outputs"), key=lambda entry: entry.integer("output_ordinal", 0) or 0)
    outputs = tuple(_output(entry) for entry in entries)
    if not outputs:
        raise InvalidInput(binding.name_of("outputs"), "is missing; it must name at least one column")
    if len(outputs) > 1 and any(output.struct_field is None for output in outputs):
        raise InvalidInput(
            binding.name_of("outputs"), "mixes the whole result with fields of it; use one or the other"
        )
    named = {entry.required_text("name") for entry in fields.objects("new_columns")}
    if named != {output.name for output in outputs}:
        raise InvalidInput("new_columns", f"names {sorted(named)}, which are not the outputs of the function")
    return outputs


def _output(entry: Fields) -> ColumnOutput:
    field = entry.required_text("result_field")
    return ColumnOutput(entry.required_text("output_name"), None if field == WHOLE_RESULT else field)


def _with_arguments(function: Function, application: Fields) -> Function:
    """The function with the arguments of this binding. Other arguments make it another function."""
    initialization = application.raw("initialization") or {}
    if not isinstance(initialization, Mapping):
        raise InvalidInput(application.name_of("initialization"), "must be a JSON object")
    parameters_by_name = _initialization(function)
    field = application.name_of("initialization")
    unknown = sorted(set(initialization) - parameters_by_name.keys())
    if unknown:
        raise InvalidInput(field, f"names {unknown}; {function.name} takes {sorted(parameters_by_name)}")
    missing = sorted(
        name
        for name, entry in parameters_by_name.items()
        if not entry["nullable"] and initialization.get(name) is None
    )
    if missing:
        raise InvalidInput(field, f"lacks {missing}, which {function.name} requires")
    # For a null value the default of the function applies.
    arguments = {name: value for name, value in initialization.items() if value is not None}
    if not arguments:
        return function
    arguments_text = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return source_function(
        function.entrypoint or function.name,
        function.payload.decode(),
        function.parameters,
        function.value_type,
        name=f"{function.name}({arguments_text:.200})",
        python=function.python,
        requirements=function.requirements,
        arguments=arguments,
        kind=function.kind,
    )


def _initialization(function: Function) -> dict[str, dict[str, Any]]:
    signature = function.declared[REGISTRATION]["signature"]
    return {entry["name"]: entry for entry in signature.get("initialization", ())}


def _source(artifact: Fields) -> tuple[str, str]:
    kind = artifact.required_text("kind")
    if kind != "python_callable":
        raise Unsupported(f"artifact.kind: {kind!r:.60} is not supported yet; put the code in one module")
    adapter = artifact.nested("adapter")
    if adapter is not None and adapter.required_text("kind") != ADAPTER:
        raise Unsupported(f"artifact.adapter.kind: {adapter.text('kind')!r:.60} is not supported")
    content = _required_object(artifact, "content")
    if content.required_text("encoding") != "base64":
        raise InvalidInput("artifact.content.encoding", "must be 'base64'")
    source = decode_base64(content.required_text("data"), "artifact.content.data")
    if artifact.required_text("digest") != f"sha256:{hashlib.sha256(source).hexdigest()}":
        raise InvalidInput("artifact.digest", "is not the SHA-256 of the content; the code was corrupted")
    try:
        return source.decode(), artifact.required_text("entrypoint")
    except UnicodeDecodeError as error:
        raise InvalidInput("artifact.content.data", f"is not UTF-8 ({error.reason})") from error


def _requirements(runtime: Fields) -> tuple[str, ...]:
    kind = runtime.required_text("kind")
    if kind != "python" or runtime.has("gpu"):
        raise Unsupported("runtime: functions that need a GPU are not supported yet")
    if runtime.raw("env"):
        raise Unsupported("runtime.env: is not supported yet; use a class and pass the values to __init__")
    environment = _required_object(runtime, "environment")
    if environment.required_text("kind") != "pip":
        raise Unsupported(
            f"runtime.environment.kind: {environment.text('kind')!r:.60} is not supported yet; use pip"
        )
    return environment.texts("packages") or ()


def _call_kind(source: str, entrypoint: str) -> FunctionKind:
    """How to call the function, judged by its type hints. Parses the code without running it."""
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput("artifact.content.data", f"is not Python ({error})"[:300]) from error
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == entrypoint:
            return _kind_from_hints(node.args.args)
        if isinstance(node, ast.ClassDef) and node.name == entrypoint:
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            return next(
                (_kind_from_hints(item.args.args[1:]) for item in methods if item.name == "__call__"),
                FunctionKind.SCALAR,
            )
    raise InvalidInput("artifact.entrypoint", f"{entrypoint!r:.60} is not defined in the content")


def _kind_from_hints(parameters: Sequence[ast.arg]) -> FunctionKind:
    hints = [None if entry.annotation is None else ast.unparse(entry.annotation) for entry in parameters]
    names = {None if hint is None else hint.strip("'\"").rpartition(".")[2] for hint in hints}
    if "RecordBatch" in names:
        raise Unsupported("artifact: functions of a RecordBatch are not supported yet; use pyarrow Arrays")
    return FunctionKind.ARRAYS if names == {"Array"} else FunctionKind.SCALAR


def _output_type(output: Fields) -> pa.DataType:
    kind = output.required_text("kind")
    if kind == "scalar":
        name = output.name_of("arrow_type")
        return function_type(output.required_text("arrow_type"), name)
    if kind != NAMED_STRUCT:
        raise Unsupported(f"{output.name_of('kind')}: must be scalar or {NAMED_STRUCT}, not {kind!r:.60}")
    fields = output.objects("fields")
    if not fields:
        raise InvalidInput(output.name_of("fields"), "is missing; a struct needs at least one field")
    return pa.struct([pa.field(entry.required_text("name"), _field_type(entry)) for entry in fields])


def _checked_signature(signature: Fields) -> dict[str, Any]:
    """Returns the signature as it was sent, after checking that all its types are supported."""
    for key in ("inputs", "initialization"):
        for entry in signature.objects(key):
            _field_type(entry)
    inputs, output = signature.raw("inputs"), signature.raw("output")
    stored = {
        "inputs": inputs or [],
        "output": output,
        "initialization": signature.raw("initialization") or [],
    }
    return dict(orjson.loads(orjson.dumps(stored)))


def _field_type(entry: Fields) -> pa.DataType:
    entry.required_text("name")
    if entry.flag("nullable") is None:
        raise InvalidInput(entry.name_of("nullable"), "is missing; it must be true or false")
    return function_type(entry.required_text("arrow_type"), entry.name_of("arrow_type"))


def _required_object(fields: Fields, key: str) -> Fields:
    nested = fields.nested(key)
    if nested is None:
        raise InvalidInput(fields.name_of(key), "is missing; it must be a JSON object")
    return nested


def function_type(text: str, field: str, depth: int = 0) -> pa.DataType:
    """Reads a type of a signature; raises InvalidInput."""
    if text == BLOB:
        raise Unsupported(f"{field}: blobs are not supported in functions yet; use binary")
    if text.startswith("{"):
        return _json_type(text, field)
    if text in PLAIN_TYPES:
        return PLAIN_TYPES[text]
    matched = LISTS.fullmatch(text)
    if matched is None or depth > MAX_DEPTH:
        raise InvalidInput(field, f"{text!r:.80} is not a known type")
    return _list_type(matched["family"], matched["inside"], field, depth)


def _json_type(text: str, field: str) -> pa.DataType:
    try:
        return parse_type(orjson.loads(text), field)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(field, f"is not a type as JSON ({error})") from error


def _list_type(family: str, inside: str, field: str, depth: int) -> pa.DataType:
    """The short form has only the type of the items, which cannot be null."""
    if family != "fixed_size_list":
        item = pa.field("item", function_type(inside, field, depth + 1), nullable=False)
        return pa.list_(item) if family == "list" else pa.large_list(item)
    sized = SIZED.fullmatch(inside)
    length = 0 if sized is None else int(sized["length"])
    if sized is None or not 0 < length < 2**31:
        raise InvalidInput(field, f"'fixed_size_list<{inside:.60}>' must have an item type and a length")
    item = pa.field("item", function_type(sized["item"].strip(), field, depth + 1), nullable=False)
    return pa.list_(item, length)
