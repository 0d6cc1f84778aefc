"""Names that stand for a query: nothing is stored but its text, and its source is read on every read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Table


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A query under a name, which it has from `table`.

    `statement` is what the client sent; `columns` are expressions over the source by the names they get;
    `output` are the columns as they were when the query was stored.
    """

    table: Table
    statement: str
    source: TableIdent
    columns: Mapping[str, str]
    filter: str | None
    limit: int | None
    output: pa.Schema
