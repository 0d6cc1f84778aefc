"""Registered functions as Iceberg function metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from tidemill.catalog.model.functions import Function, RegisteredFunction
from tidemill.protocols.iceberg.function_types import ANY_TYPE, TypeJson, struct_json, type_json

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
        "function-uuid": str(uuid5(NAMESPACE_URL, NAME_PREFIX + newest.name)),
        "format-version": FORMAT_VERSION,
        "definitions": [_definition(key, same) for key, same in definitions.items()],
        "definition-log": _log(definitions),
        "properties": {"tidemill.digest": newest.digest, "tidemill.kind": newest.kind.value},
    }


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
