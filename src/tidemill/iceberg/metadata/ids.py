"""Ids of schemas, specs, orders and versions: what has one is found by it, and the next one is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.model.entries import Document

MAX_INT: Final = 2**31 - 1


def id_of(document: Document, key: str) -> int:
    """Old documents leave out an id that is 0."""
    return document.get(key) or 0


def find_by_id(documents: Iterable[Document], key: str, wanted: int) -> Document | None:
    return next((document for document in documents if id_of(document, key) == wanted), None)


def next_id(taken: Iterable[int], wanted: int, key: str) -> int:
    """The wanted one if it is above all that are taken, and else the next above those."""
    found = max(wanted, max(taken, default=-1) + 1)
    if found > MAX_INT:
        raise InvalidMetadata(f"{key}: there is none left after {MAX_INT}")
    return found
