"""Tables, their versions, and what is asked of their data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Final
from uuid import UUID

import pyarrow as pa

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import InvalidInput

MAIN_BRANCH: Final = "main"


class TableKind(Enum):
    """What stands behind a name: a table, a materialized view, or a query that is run on every read."""

    TABLE = "table"
    VIEW = "view"
    QUERY = "query"


@dataclass(frozen=True, slots=True)
class Table:
    """A Lance table as one of its branches shows it; it has data once it has a version."""

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
        """Where this branch is read and written: to Lance a branch is a table of its own inside the table."""
        return self.location if self.branch == MAIN_BRANCH else f"{self.location}/tree/{self.branch}"


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
    """The row of a version. It reserves the number; the manifest at `manifest_path` decides who has it.

    `staged_path` and `digest` (SHA-256) say which manifest is meant, `deferred` what is still to be recorded
    once it is in place. A version that was found in storage has its final path in both places and no digest.
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
        """Whether the catalog learned of it by looking into storage."""
        return self.staged_path == self.manifest_path


@dataclass(frozen=True, slots=True)
class Page:
    """A slice of a sorted listing: what comes after `after`, at most `limit` of it."""

    after: str | None = None
    limit: int | None = None


class Declared(Enum):
    """Whether a listing shows tables that have no data yet."""

    INCLUDE = "include"
    EXCLUDE = "exclude"


class RegisterMode(Enum):
    """What to do when the name of a table to register is taken."""

    CREATE = "Create"
    OVERWRITE = "Overwrite"


@dataclass(frozen=True, slots=True)
class TablePoint:
    """Which state of a table is meant: a tag, or a version of a branch; neither is the latest of main."""

    version: int | None = None
    tag: str | None = None
    branch: str | None = None

    def __post_init__(self) -> None:
        if self.tag is not None and not (self.version is None and self.branch is None):
            raise InvalidInput("tag", "excludes version and branch; give one of them")


class InsertMode(Enum):
    APPEND = "append"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write of rows did."""

    version: int
    rows: int


@dataclass(frozen=True, slots=True)
class TableSummary:
    """What the manifest of a version alone tells."""

    deleted_rows: int
    fragments: int


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Figures of one version of a table; `fragment_rows` are the rows written to each fragment, sorted."""

    rows: int
    bytes_on_disk: int
    indices: int
    fragment_rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table with what its data says at one version; no version means that it has no data."""

    table: Table
    version: TableVersion | None
    schema: pa.Schema | None
