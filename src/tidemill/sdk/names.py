"""Names of namespaces, tables and views as users write them and as URLs carry them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

Name = str | Sequence[str]
DEFAULT_DELIMITER: Final = "$"
# A name may hold the usual delimiter; then another one keeps its levels apart.
DELIMITERS: Final = (DEFAULT_DELIMITER, "|", "~", ":", "\x1f")


def levels_of(name: Name) -> tuple[str, ...]:
    """The levels of `"space.table"` or `["space", "table"]`; a list is needed for names with dots."""
    if not isinstance(name, str | list | tuple):
        raise TypeError(f"a name is 'space.table' or ['space', 'table'], not {name!r}")
    levels = tuple(name.split(".")) if isinstance(name, str) else tuple(name)
    if not all(isinstance(level, str) for level in levels):
        raise TypeError(f"every level of a name is a string: {name!r}")
    if not levels or not all(levels):
        raise ValueError(f"{name!r} has an empty level; write 'space.table' or ['space', 'table']")
    return levels


def namespace_levels(name: Name | None) -> tuple[str, ...]:
    """Like `levels_of`; None or nothing is the root."""
    return levels_of(name) if name else ()


def dotted(levels: Sequence[str]) -> str:
    return ".".join(levels)


def joined_id(levels: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The levels as one string, and the query parameters with its delimiter."""
    for delimiter in DELIMITERS:
        if not any(delimiter in level for level in levels):
            query = {} if delimiter == DEFAULT_DELIMITER else {"delimiter": delimiter}
            return delimiter.join(levels) or delimiter, query
    raise ValueError(f"{list(levels)} holds every character that could separate its levels")


def url_id(levels: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The id in a path, and the query parameters with its delimiter."""
    joined, query = joined_id(levels)
    # The usual delimiter stands in no level here, so it may stay as it is.
    return quote(joined, safe="" if query else DEFAULT_DELIMITER), query
