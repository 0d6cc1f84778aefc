"""Lance tables and stored queries as the database knows them, and their versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Final
from uuid import UUID

import pyarrow as pa

from tidemill.catalog.model.identifiers import TableIdent

MAIN_BRANCH: Final = "main"


class TableKind(Enum):
    """A table, a materialized view, or a stored query."""

    TABLE = "table"
    VIEW = "view"
    QUERY = "query"


@dataclass(frozen=True, slots=True)
class Table:
    """A Lance table on one of its branches. It has data once it has a version."""

    table_id: UUID
    ident: TableIdent
    location: str
    kind: TableKind = TableKind.TABLE
    properties: Mapping[str, str] = field(default_factory=dict)
    branch: str = MAIN_BRANCH

    def on(self, branch: str) -> Table:
        return self if branch == self.branch else replace(self, branch=branch)

    @property
    def data_location(self) -> str:
        """Location of this branch: to Lance a branch is a table of its own inside the table."""
        return self.location if self.branch == MAIN_BRANCH else f"{self.location}/tree/{self.branch}"


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """A version to commit, with the path of its staged manifest.

    Without a naming scheme, its manifest is named like those of the table.
    """

    version: int
    manifest_path: str
    manifest_size: int | None = None
    e_tag: str | None = None
    naming_scheme: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The row of a version. It reserves the number; the manifest at `manifest_path` decides whose it is.

    `staged_path` and `digest` (SHA-256) identify the manifest of the row. `deferred` holds the writes to
    apply once the manifest is published. A version that was found in storage has the final path in both
    fields and no digest.
    """

    table_id: UUID
    branch: str
    version: int
    manifest_path: str
    staged_path: str
    manifest_size: int
    created_at: datetime
    e_tag: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    digest: str | None = None
    deferred: bytes | None = None

    @property
    def was_found(self) -> bool:
        """Whether the catalog found it in storage, instead of committing it."""
        return self.staged_path == self.manifest_path


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a sorted listing: at most `limit` entries after `after`."""

    after: str | None = None
    limit: int | None = None


class Declared(Enum):
    """Whether a listing shows tables that have no data yet."""

    INCLUDE = "include"
    EXCLUDE = "exclude"


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of writing rows."""

    version: int
    rows: int


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
