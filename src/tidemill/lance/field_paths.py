"""Finds fields of Lance tables by path and writes paths as SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from tidemill.catalog.field_paths import parse_path, resolve_path
from tidemill.catalog.model.identifiers import TableIdent

PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def get_field(
    ident: TableIdent, schema: pa.Schema, path: str, field: str
) -> tuple[tuple[str, ...], pa.Field]:
    """The names on a path and its field. Raises TableColumnNotFound, or InvalidInput for a bad path."""
    _, resolved = resolve_path(ident, schema, path, field)
    return (path,) if path in schema.names else parse_path(path, field), resolved


def sql_path(names: Iterable[str]) -> str:
    """Joins names as SQL, where more names need quotes than in a path."""
    return ".".join(name if PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`" for name in names)
