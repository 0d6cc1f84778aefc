"""Tables, their versions, and what is asked of their data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final
from uuid import UUID

import pyarrow as pa

from tidemill.catalog.model.identifiers import TableIdent

MAIN_BRANCH: Final = "main"


class TableKind(Enum):
    """What stands behind a name."""

    TABLE = "table"
    VIEW = "view"


@dataclass(frozen=True, slots=True)
class Table:
    """A Lance table; it has data once it has a version."""

    table_id: UUID
    ident: TableIdent
    location: str
    kind: TableKind = TableKind.TABLE
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """A version somebody wants to commit: where its staged manifest is."""

    version: int
    manifest_path: str
    manifest_size: int | None = None
    e_tag: str | None = None
    naming_scheme: str = "V2"
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A committed version; `staged_path` is where its manifest came from."""

    table_id: UUID
    branch: str
    version: int
    manifest_path: str
    staged_path: str
    manifest_size: int
    created_at: datetime
    e_tag: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """A slice of a sorted listing: what comes after `after`, at most `limit` of it."""

    after: str | None = None
    limit: int | None = None


class InsertMode(Enum):
    APPEND = "append"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class TableQuery:
    """A read of rows: filter, projection, nearest neighbours or full text."""

    limit: int | None = None
    offset: int | None = None
    filter: str | None = None
    columns: tuple[str, ...] | Mapping[str, str] | None = None
    version: int | None = None
    with_row_id: bool = False
    vector: tuple[float, ...] | None = None
    vector_column: str | None = None
    distance_type: str | None = None
    nprobes: int | None = None
    refine_factor: int | None = None
    prefilter: bool = True
    full_text: str | None = None
    full_text_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write of rows did."""

    version: int
    rows: int


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table with what its current data says."""

    table: Table
    version: TableVersion | None
    schema: pa.Schema | None
