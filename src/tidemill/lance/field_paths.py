"""Field paths: `a`, `a.b`. A name that contains a dot or a backtick is written in backticks.

Finds fields of a schema by path, and writes paths as SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import InvalidInput

PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_path(text: str, field: str) -> tuple[str, ...]:
    """Splits a path into field names; raises InvalidInput if it is malformed."""
    segments: list[str] = []
    rest = text
    while True:
        segment, rest = _read_quoted(rest, field) if rest.startswith("`") else _read_plain(rest)
        if not segment:
            raise InvalidInput(
                field, f"{text!r:.100} has an empty name; write a.b, or a.`b.c` for a dot in a name"
            )
        segments.append(segment)
        if not rest:
            return tuple(segments)
        if not rest.startswith("."):
            raise InvalidInput(
                field, f"{text!r:.100} continues after a closing backtick; only a dot may follow"
            )
        rest = rest[1:]


def canonical_path(segments: Sequence[str]) -> str:
    return ".".join(_quoted_if_needed(segment) for segment in segments)


def resolve_path(
    ident: TableIdent, schema: pa.Schema, text: str, field: str, *, is_through_lists: bool = False
) -> tuple[str, pa.Field]:
    """Returns the canonical path and its field; raises TableColumnNotFound.

    A top-level column whose name contains a dot, created by another tool, is also found by its bare name.
    Paths of full-text indexes pass through lists without naming the list items.
    """
    if text in schema.names:
        return canonical_path((text,)), schema.field(text)
    segments = parse_path(text, field)
    resolved = _child(list(schema), segments[0])
    for segment in segments[1:]:
        resolved = (
            None
            if resolved is None
            else _find_inside(resolved.type, segment, is_through_lists=is_through_lists)
        )
    if resolved is None:
        raise TableColumnNotFound(ident, text, tuple(schema.names))
    return canonical_path(segments), resolved


def _read_quoted(text: str, field: str) -> tuple[str, str]:
    name, position = "", 1
    while True:
        end = text.find("`", position)
        if end < 0:
            raise InvalidInput(field, f"{text!r:.100} has an unclosed backtick")
        name += text[position:end]
        if not text.startswith("``", end):
            return name, text[end + 1 :]
        name += "`"
        position = end + 2


def _read_plain(text: str) -> tuple[str, str]:
    name, dot, rest = text.partition(".")
    return name, dot + rest


def _quoted_if_needed(segment: str) -> str:
    if "." not in segment and "`" not in segment:
        return segment
    escaped = segment.replace("`", "``")
    return f"`{escaped}`"


def _find_inside(data_type: pa.DataType, name: str, *, is_through_lists: bool) -> pa.Field | None:
    resolved = _child(_children(data_type), name)
    is_list = pa.types.is_list(data_type) or pa.types.is_large_list(data_type)
    if resolved is None and is_list and is_through_lists:
        return _find_inside(data_type.value_type, name, is_through_lists=True)
    return resolved


def _child(fields: Sequence[pa.Field], name: str) -> pa.Field | None:
    return next((field for field in fields if field.name == name), None)


def _children(data_type: pa.DataType) -> list[pa.Field]:
    if isinstance(data_type, pa.BaseExtensionType):
        return _children(data_type.storage_type)
    return [data_type.field(index) for index in range(data_type.num_fields)]


def get_field(
    ident: TableIdent, schema: pa.Schema, path: str, field: str
) -> tuple[tuple[str, ...], pa.Field]:
    """The names on a path and its field. Raises TableColumnNotFound, or InvalidInput for a bad path."""
    _, resolved = resolve_path(ident, schema, path, field)
    return (path,) if path in schema.names else parse_path(path, field), resolved


def sql_path(names: Iterable[str]) -> str:
    """Joins names as SQL, where more names need quotes than in a path."""
    return ".".join(name if PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`" for name in names)
