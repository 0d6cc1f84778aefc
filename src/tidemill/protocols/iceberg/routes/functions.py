"""Registered Python functions as Iceberg functions.

Each is listed in its namespace. Those of the root, which the protocol cannot name, are listed in all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa
from pyarrow import types
from starlette.responses import Response

from tidemill.catalog.errors import FunctionNotFound
from tidemill.catalog.model.functions import Function, RegisteredFunction
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.catalog.model.tables import Page
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.iceberg.mapping import namespace_of
from tidemill.protocols.iceberg.parameters import page_body, page_of, route_pair

FORMAT_VERSION: Final = 1
NAME_PREFIX: Final = "urn:tidemill:function:"
DIALECT: Final = "python"


def function_metadata(versions: Sequence[RegisteredFunction]) -> dict[str, Any]:
    """Metadata of one function; `versions` are in ascending order, with one definition per signature."""
    by_signature: dict[str, list[RegisteredFunction]] = {}
    for registered in versions:
        by_signature.setdefault(_definition_id(registered.function), []).append(registered)
    definitions = {key: _like_newest(same) for key, same in by_signature.items()}
    newest = versions[-1].function
    return {
        "function-uuid": str(uuid5(NAMESPACE_URL, NAME_PREFIX + _full_name(versions[-1]))),
        "format-version": FORMAT_VERSION,
        "definitions": [_definition(key, same) for key, same in definitions.items()],
        "definition-log": _log(definitions),
        "properties": {"tidemill.digest": newest.digest, "tidemill.kind": newest.kind.value},
    }


def _full_name(registered: RegisteredFunction) -> str:
    """The name with its namespace, which the names of lancedb's functions have already."""
    prefix = "".join(f"{level}$" for level in (registered.namespace or NamespacePath()).levels)
    return prefix + registered.function.name.removeprefix(prefix)


def _definition_id(function: Function) -> str:
    return ",".join(ANY_TYPE for _ in function.parameters)


def _like_newest(versions: Sequence[RegisteredFunction]) -> Sequence[RegisteredFunction]:
    """Versions with the newest one's parameters and result: the specification requires both to agree."""
    newest = versions[-1].function
    return [
        item
        for item in versions
        if item.function.parameters == newest.parameters
        and item.function.kind.makes_rows == newest.kind.makes_rows
        and item.function.output.equals(newest.output)
    ]


def _definition(key: str, versions: Sequence[RegisteredFunction]) -> dict[str, Any]:
    newest = versions[-1]
    return {
        "definition-id": key,
        "parameters": [{"name": name, "type": ANY_TYPE} for name in newest.function.parameters],
        "return-type": _return_type(newest.function),
        "versions": [_version(item) for item in versions],
        "current-version-id": newest.version,
        "function-type": "udtf" if newest.function.kind.makes_rows else "udf",
    }


def _return_type(function: Function) -> TypeJson:
    return struct_json(function.output) if function.kind.makes_rows else type_json(function.value_type)


def _version(registered: RegisteredFunction) -> dict[str, Any]:
    """Iceberg has only SQL functions, in any dialect; a Python function is represented by its source."""
    function = registered.function
    text = function.source or f"-- python function {function.digest}"
    return {
        "version-id": registered.version,
        "representations": [{"type": "sql", "dialect": DIALECT, "sql": text}],
        "timestamp-ms": _millis(registered),
    }


def _log(definitions: dict[str, Sequence[RegisteredFunction]]) -> list[dict[str, Any]]:
    """For each registration, the newest version of every definition at that time."""
    current: dict[str, int] = {}
    entries = []
    registrations = sorted(
        (item.version, key, item) for key, versions in definitions.items() for item in versions
    )
    for version, key, item in registrations:
        current[key] = version
        current_versions = [{"definition-id": name, "version-id": number} for name, number in current.items()]
        entries.append({"timestamp-ms": _millis(item), "definition-versions": current_versions})
    return entries


def _millis(registered: RegisteredFunction) -> int:
    return int(registered.registered_at.timestamp() * 1000)


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


FUNCTIONS: Final = "/namespaces/{namespace}/functions"


def list_functions(call: Call) -> Response:
    namespace = namespace_of(call)
    listed = _functions_in(call, namespace)

    def names(page: Page) -> Sequence[str]:
        found = {item.function.name for item in listed}
        following = sorted(name for name in found if page.after is None or name > page.after)
        return following[: page.limit]

    return json_response(
        page_body(page_of(call), "identifiers", names, lambda name: [*namespace.levels, name])
    )


def load_function(call: Call) -> Response:
    name = call.parameters["function"]
    functions = _functions_in(call, namespace_of(call))
    named = [item for item in functions if item.function.name == name]
    # One of the namespace hides one of the root.
    versions = [item for item in named if item.namespace != NamespacePath()] or named
    if not versions:
        raise FunctionNotFound(name)
    return json_response({"metadata": function_metadata(versions)})


def _functions_in(call: Call, namespace: NamespacePath) -> list[RegisteredFunction]:
    """Raises NamespaceNotFound."""
    call.operations.namespaces.describe(call.caller, namespace)
    registered = call.operations.functions.list_registered(call.caller)
    return [item for item in registered if item.namespace in {NamespacePath(), namespace}]


ROUTES: Final = (
    *route_pair("GET", FUNCTIONS, list_functions),
    *route_pair("GET", f"{FUNCTIONS}/{{function}}", load_function),
)
