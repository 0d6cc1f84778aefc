"""Reads the ids of namespaces and tables in paths."""

from __future__ import annotations

from typing import Final

from tidemill.catalog.model.identifiers import (
    NamespacePath,
    TableIdent,
    namespace_path,
    table_ident,
)
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call

DEFAULT_DELIMITER: Final = "$"
MAX_DELIMITER_LENGTH: Final = 16


def delimiter_of(call: Call) -> str:
    delimiter = call.query.get("delimiter", DEFAULT_DELIMITER)
    if not delimiter or len(delimiter) > MAX_DELIMITER_LENGTH:
        raise InvalidInput("delimiter", f"must have 1 to {MAX_DELIMITER_LENGTH} characters")
    return delimiter


def split_id(raw: str, delimiter: str) -> tuple[str, ...]:
    """The levels of an id. The delimiter alone is the root."""
    return () if raw == delimiter else tuple(raw.split(delimiter))


def levels_of(call: Call) -> tuple[str, ...]:
    """The levels of the id in the path. Without an id it is the root, because URL libraries remove `/./`."""
    raw = call.parameters.get("id")
    return () if raw is None else split_id(raw, delimiter_of(call))


def namespace_of(call: Call) -> NamespacePath:
    return namespace_path(levels_of(call))


def table_of(call: Call) -> TableIdent:
    return table_ident(levels_of(call))
