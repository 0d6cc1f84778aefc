"""Transforms of partition and sort fields: their names, and the types that they accept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.json_fields import abbreviated, get_int, get_ints, get_string
from tidemill.iceberg.metadata.schemas import Column
from tidemill.iceberg.metadata.types import get_family
from tidemill.iceberg.model.entries import Document

VOID: Final = "void"
_SYNTAX: Final = re.compile(r"\w[\w-]*(\[[^\[\]]*\])?")
_WIDTH: Final = re.compile(r"(bucket|truncate)\[(\d+)\]", re.ASCII)
_NAMED: Final = frozenset({"identity", "year", "month", "day", "hour", VOID})
_INT_LIMIT: Final = 2**31

_TIMESTAMPS: Final = frozenset({"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"})
_DATES: Final = _TIMESTAMPS | {"date"}
_TRUNCATABLE: Final = frozenset({"int", "long", "string", "binary", "decimal"})
_SOURCES: Final[Mapping[str, frozenset[str]]] = {
    "year": _DATES,
    "month": _DATES,
    "day": _DATES,
    "hour": _TIMESTAMPS,
    "truncate": _TRUNCATABLE,
    "bucket": _TRUNCATABLE | _DATES | {"time", "fixed", "uuid"},
}
_NOT_IDENTITY: Final = frozenset({"geography", "geometry", "variant"})


def check_transform(field: Document, where: str) -> None:
    """Checks the syntax, and for transforms of the specification also the parameters."""
    name = get_string(field, "transform", where)
    if not _SYNTAX.fullmatch(name):
        raise InvalidMetadata(f"Cannot parse transform: {where}.transform: {abbreviated(name)}")
    if match := _WIDTH.fullmatch(name.lower()):
        label = "number of buckets" if match[1] == "bucket" else "truncate width"
        # Python refuses to parse extremely long numbers.
        width = int(match[2][:20])
        if not 0 < width < _INT_LIMIT:
            raise InvalidMetadata(f"Invalid {label}: {match[2]:.20} (must be > 0)")


def canonical_transform(name: str) -> str:
    """Transforms of the specification are case-insensitive; unknown ones stay unchanged."""
    lower = name.lower()
    return lower if lower in _NAMED or _WIDTH.fullmatch(lower) else name


def get_sources(field: Document, where: str) -> Sequence[int]:
    """The ids of a field's source columns; only transforms of several columns use `source-ids`."""
    if field.get("source-id") is None and field.get("source-ids") is not None:
        sources = get_ints(field, "source-ids", where)
        if not sources:
            raise InvalidMetadata(f"Cannot parse {where}.source-ids: must not be empty")
        return sources
    return [get_int(field, "source-id", where)]


def with_fresh_sources(field: Document, fresh_ids: Mapping[int, int], where: str) -> Document:
    """The field with the fresh ids of its source columns."""
    sources = [fresh_ids[source] for source in get_sources(field, where)]
    renewed: dict[str, Any] = {"source-ids": sources} if "source-ids" in field else {}
    if field.get("source-id") is not None:
        renewed["source-id"] = sources[0]
    return {**field, **renewed}


def can_transform(transform: str, column: Column) -> bool:
    """Whether the transform accepts a primitive column; unknown transforms accept any."""
    family = get_family(column.type, column.name)
    name = transform.split("[")[0]
    if name == "identity":
        return family not in _NOT_IDENTITY
    return name not in _SOURCES or family in _SOURCES[name]
