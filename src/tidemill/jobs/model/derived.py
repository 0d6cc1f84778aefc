"""What is declared to be computed: columns and materialized views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final
from uuid import UUID

import pyarrow as pa

from tidemill.catalog.model.functions import Function

SOURCE_ROW_ID: Final = "__source_row_id"
CHILD_INDEX: Final = "__child_index"


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column filled by a function; `inputs` are bound to its parameters in order."""

    column_id: UUID
    table_id: UUID
    name: str
    function_digest: str
    inputs: tuple[str, ...]


class ViewKind(StrEnum):
    QUERY = "query"
    CHUNKER = "chunker"


@dataclass(frozen=True, slots=True)
class SourceQuery:
    """The rows and columns of the source that a view is made from; no columns means all of them."""

    source: tuple[str, ...]
    columns: Mapping[str, str] | None = None
    filter: str | None = None


@dataclass(frozen=True, slots=True)
class MaterializedView:
    """A view's definition; its rows are in the table of the same id.

    `raw_query` is what the client sent, byte for byte. `digest` identifies the definition, code included.
    """

    view_id: UUID
    source_id: UUID
    kind: ViewKind
    query: SourceQuery
    raw_query: str
    digest: str
    function_digest: str | None = None
    inputs: tuple[str, ...] = ()
    has_auto_refresh: bool = False


def frozen(query: SourceQuery, schema: pa.Schema) -> SourceQuery:
    """The query with its columns written out: columns added to the source later do not join the view."""
    if query.columns is not None:
        return query
    return replace(query, columns={name: quoted(name) for name in schema.names})


def view_output(kind: ViewKind, projected: pa.Schema, function: Function | None) -> pa.Schema:
    """The columns of a view: where each row comes from, what it inherits, what the function made."""
    hidden = [pa.field(SOURCE_ROW_ID, pa.int64(), nullable=False)]
    if kind is ViewKind.CHUNKER:
        hidden.append(pa.field(CHILD_INDEX, pa.int32(), nullable=False))
    made = [] if function is None else list(function.output)
    return pa.schema([*hidden, *projected, *made])


def quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
