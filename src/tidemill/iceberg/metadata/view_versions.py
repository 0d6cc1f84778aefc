"""Versions of views: what they have to consist of, their dialects, and what makes two of them the same."""

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
    get_strings,
    get_texts,
    without_nulls,
)
from tidemill.iceberg.model.entries import Document

SQL: Final = "sql"
# What a version is called and when it was made are not part of what it says.
CIRCUMSTANCES: Final = frozenset({"version-id", "timestamp-ms"})


def check_version(version: Document, where: str) -> None:
    """That every field is there and of its type; representations of kinds yet unknown are let pass."""
    check_depth(version, where)
    get_int(version, "version-id", where)
    get_int(version, "schema-id", where)
    get_long(version, "timestamp-ms", where)
    get_strings(version, "summary", where)
    for at, representation in enumerate(get_objects(version, "representations", where)):
        path = f"{where}.representations[{at}]"
        if get_string(representation, "type", path).lower() == SQL:
            get_string(representation, "sql", path)
            get_string(representation, "dialect", path)
    find_string(version, "default-catalog", where)
    get_texts(version, "default-namespace", where)


def writable_version(version: Document, where: str) -> Document:
    """A version as it may be added to a view: all SQL, and one query for each dialect."""
    check_version(version, where)
    representations: list[Document] = version["representations"]
    unknown = sorted({kind for each in representations if (kind := each["type"].lower()) != SQL})
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
    return {**pruned, "representations": [{**each, "type": SQL} for each in pruned["representations"]]}


def same_version(one: Document, other: Document) -> bool:
    """Whether both say the same, in fields known here or not; null is the same as absent."""
    return _said(one) == _said(other)


def dialects_of(version: Document) -> frozenset[str]:
    return frozenset(_dialects(version))


def _said(version: Document) -> str:
    # As text, because to Python 1, 1.0 and true are equal.
    said = {key: value for key, value in version.items() if key not in CIRCUMSTANCES and value is not None}
    return json.dumps(said, sort_keys=True)


def _dialects(version: Document) -> Iterator[str]:
    for representation in version["representations"]:
        if representation["type"].lower() == SQL:
            yield representation["dialect"].lower()
