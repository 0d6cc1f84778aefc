"""Reads typed values and ids from JSON objects; errors name the path of the offending field."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import orjson

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.model.entries import Document

_INT_LIMIT: Final = 2**31
_LONG_LIMIT: Final = 2**63
_DEPTH_LIMIT: Final = 150
_MAX_QUOTED_LENGTH: Final = 100
_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,20}")


def abbreviated(value: Any) -> str:
    """A value as JSON, short enough for an error message."""
    try:
        text = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _MAX_QUOTED_LENGTH else f"{text[:_MAX_QUOTED_LENGTH]}..."


def get_object(value: Any, where: str) -> Document:
    if not isinstance(value, dict):
        raise InvalidMetadata(f"Cannot parse {where} from a non-object: {abbreviated(value)}")
    return value


def get_list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidMetadata(f"Cannot parse {where} from non-array: {abbreviated(value)}")
    return value


def get_field(owner: Document, key: str, where: str) -> Any:
    if key not in owner:
        raise InvalidMetadata(f"Cannot parse missing field: {where}.{key}")
    return owner[key]


def get_int(owner: Document, key: str, where: str) -> int:
    return _integer(_present(owner, key, where, "int"), f"{where}.{key}", "an integer", _INT_LIMIT)


def get_long(owner: Document, key: str, where: str) -> int:
    return _integer(_present(owner, key, where, "long"), f"{where}.{key}", "a long", _LONG_LIMIT)


def get_string(owner: Document, key: str, where: str) -> str:
    value = _present(owner, key, where, "string")
    if not isinstance(value, str):
        raise InvalidMetadata(f"Cannot parse to a string value: {where}.{key}: {abbreviated(value)}")
    return value


def get_boolean(owner: Document, key: str, where: str) -> bool:
    value = _present(owner, key, where, "boolean")
    if not isinstance(value, bool):
        raise InvalidMetadata(f"Cannot parse to a boolean value: {where}.{key}: {abbreviated(value)}")
    return value


def get_string_map(owner: Document, key: str, where: str) -> dict[str, str]:
    """A map from strings to strings."""
    value = _present(owner, key, where, "map")
    path = f"{where}.{key}"
    if not isinstance(value, dict):
        raise InvalidMetadata(f"Cannot parse string map from non-object value: {path}: {abbreviated(value)}")
    for name in value:
        get_string(value, name, path)
    return value


def get_string_list(owner: Document, key: str, where: str) -> list[str]:
    path = f"{where}.{key}"
    values = get_list(_present(owner, key, where, "list"), path)
    for value in values:
        if not isinstance(value, str):
            raise InvalidMetadata(f"Cannot parse string from non-text value in {path}: {abbreviated(value)}")
    return values


def get_ints(owner: Document, key: str, where: str) -> list[int]:
    path = f"{where}.{key}"
    values = get_list(_present(owner, key, where, "list"), path)
    return [
        _integer(value, f"{path}[{index}]", "an integer", _INT_LIMIT) for index, value in enumerate(values)
    ]


def get_longs(owner: Document, key: str, where: str) -> list[int]:
    path = f"{where}.{key}"
    values = get_list(_present(owner, key, where, "list"), path)
    return [_integer(value, f"{path}[{index}]", "a long", _LONG_LIMIT) for index, value in enumerate(values)]


def get_objects(owner: Document, key: str, where: str) -> list[Document]:
    path = f"{where}.{key}"
    values = get_list(_present(owner, key, where, "list"), path)
    return [get_object(value, f"{path}[{index}]") for index, value in enumerate(values)]


def find_int(owner: Document, key: str, where: str) -> int | None:
    return None if owner.get(key) is None else get_int(owner, key, where)


def find_long(owner: Document, key: str, where: str) -> int | None:
    return None if owner.get(key) is None else get_long(owner, key, where)


def find_string(owner: Document, key: str, where: str) -> str | None:
    return None if owner.get(key) is None else get_string(owner, key, where)


def as_int(text: str) -> int | None:
    """Parses the value of a property as Java does; None if it is not an integer or out of range."""
    if _DIGITS.fullmatch(text) is None or not -_INT_LIMIT <= int(text) < _INT_LIMIT:
        return None
    return int(text)


def without_nulls(value: Any) -> Any:
    """Documents are stored this way: Iceberg's library rejects null for some optional fields."""
    match value:
        case dict():
            return {key: without_nulls(child) for key, child in value.items() if child is not None}
        case list():
            return [without_nulls(child) for child in value]
        case _:
            return value


def check_depth(value: Any, where: str) -> None:
    """No real schema is nested this deep; walking a deeper one could exhaust the stack."""
    level: list[Any] = [value]
    for _ in range(_DEPTH_LIMIT):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise InvalidMetadata(f"Cannot parse {where}: nested deeper than {_DEPTH_LIMIT} levels")


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return [child for child in value.values() if isinstance(child, (dict, list))]
    return [child for child in value if isinstance(child, (dict, list))] if isinstance(value, list) else ()


def _present(owner: Document, key: str, where: str, kind: str) -> Any:
    if key not in owner:
        raise InvalidMetadata(f"Cannot parse missing {kind}: {where}.{key}")
    return owner[key]


def _integer(value: Any, path: str, kind: str, limit: int) -> int:
    # True and False are integers in Python but not in JSON.
    if type(value) is not int or not -limit <= value < limit:
        raise InvalidMetadata(f"Cannot parse to {kind} value: {path}: {abbreviated(value)}")
    return value


MAX_INT: Final = 2**31 - 1


def id_of(document: Document, key: str) -> int:
    """Old documents omit an id of 0."""
    return document.get(key) or 0


def find_by_id(documents: Iterable[Document], key: str, wanted: int) -> Document | None:
    return next((document for document in documents if id_of(document, key) == wanted), None)


def next_id(taken: Iterable[int], wanted: int, key: str) -> int:
    """The wanted id if it is greater than all taken ones, otherwise the next one after those."""
    result = max(wanted, max(taken, default=-1) + 1)
    if result > MAX_INT:
        raise InvalidMetadata(f"{key}: no ids are left after {MAX_INT}")
    return result
