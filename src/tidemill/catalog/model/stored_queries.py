"""Stored queries: a SELECT statement under a name, evaluated on every read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Table


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A stored query; `table` holds its name.

    `statement` is the text that the client sent. `columns` maps output names to expressions over the source.
    `output` is the schema at the time the query was stored.
    """

    table: Table
    statement: str
    source: TableIdent
    columns: Mapping[str, str]
    filter: str | None
    limit: int | None
    output: pa.Schema
