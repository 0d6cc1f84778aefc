"""Versions of views: validation, dialects and equality."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.json_fields import (
    check_depth,
    find_string,
    get_int,
    get_long,
    get_objects,
    get_string,
    get_string_list,
    get_string_map,
    without_nulls,
)
from tidemill.iceberg.model.entries import Document

SQL: Final = "sql"
# Versions are compared by content, not by id and creation time.
NOT_COMPARED: Final = frozenset({"version-id", "timestamp-ms"})


def check_version(version: Document, where: str) -> None:
    """Checks that all fields exist and have the right types; accepts unknown kinds of representations."""
    check_depth(version, where)
    get_int(version, "version-id", where)
    get_int(version, "schema-id", where)
    get_long(version, "timestamp-ms", where)
    get_string_map(version, "summary", where)
    for index, representation in enumerate(get_objects(version, "representations", where)):
        path = f"{where}.representations[{index}]"
        if get_string(representation, "type", path).lower() == SQL:
            get_string(representation, "sql", path)
            get_string(representation, "dialect", path)
    find_string(version, "default-catalog", where)
    get_string_list(version, "default-namespace", where)


def writable_version(version: Document, where: str) -> Document:
    """Checks a version before it is added to a view: only SQL, and one query per dialect."""
    check_version(version, where)
    representations: list[Document] = version["representations"]
    unknown = sorted(
        {kind for representation in representations if (kind := representation["type"].lower()) != SQL}
    )
    if unknown:
        raise InvalidMetadata(f"Found unsupported view representations: [{', '.join(unknown):.200}]")
    seen = set()
    for dialect in _dialects(version):
        if dialect in seen:
            raise InvalidMetadata(
                f"Invalid view version: Cannot add multiple queries for dialect {dialect:.200}"
            )
        seen.add(dialect)
    pruned: Document = without_nulls(version)
    return {
        **pruned,
        "representations": [{**representation, "type": SQL} for representation in pruned["representations"]],
    }


def same_version(left: Document, right: Document) -> bool:
    """Compares all fields, known or not, except id and time; null equals absent."""
    return _comparable(left) == _comparable(right)


def dialects_of(version: Document) -> frozenset[str]:
    return frozenset(_dialects(version))


def _comparable(version: Document) -> str:
    # As text, because 1, 1.0 and True are equal in Python.
    compared = {key: value for key, value in version.items() if key not in NOT_COMPARED and value is not None}
    return json.dumps(compared, sort_keys=True)


def _dialects(version: Document) -> Iterator[str]:
    for representation in version["representations"]:
        if representation["type"].lower() == SQL:
            yield representation["dialect"].lower()
