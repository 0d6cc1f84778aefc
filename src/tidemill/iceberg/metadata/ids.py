"""Finds schemas, specs, orders and versions by id, and assigns the next id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.model.entries import Document

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
