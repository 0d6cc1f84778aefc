"""Iceberg tables and views as the catalog stores them, and the requests that change them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias
from uuid import UUID

from tidemill.catalog.model.identifiers import TableIdent

Document: TypeAlias = dict[str, Any]
"""A JSON object of the Iceberg specification; keeps unknown fields."""


class EntryKind(Enum):
    TABLE = "iceberg_table"
    VIEW = "iceberg_view"


class Holder(Enum):
    """What holds a name; the first three belong to the Lance protocol."""

    LANCE_TABLE = "table"
    MATERIALIZED_VIEW = "view"
    STORED_QUERY = "query"
    ICEBERG_TABLE = "iceberg_table"
    ICEBERG_VIEW = "iceberg_view"


@dataclass(frozen=True, slots=True)
class Entry:
    """A table or view in one state: `metadata` is its document as JSON, ready to be served.

    `location` is normalized so that overlaps can be detected; the document has the client's spelling.
    """

    entry_id: UUID
    ident: TableIdent
    kind: EntryKind
    location: str
    metadata_location: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class EntryState:
    """The metadata of a table or view, and the location of its file."""

    metadata_location: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class StagedTable:
    """A table that does not exist yet; the commit that creates it sends the whole description again."""

    ident: TableIdent
    location: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class NewTable:
    """A client's description of a new table; the catalog reassigns the ids in the schema."""

    schema: Document
    location: str | None = None
    partition_spec: Document | None = None
    write_order: Document | None = None
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewView:
    schema: Document
    version: Document
    location: str | None = None
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """Updates of one table or view, and the requirements that must hold to apply them."""

    ident: TableIdent
    requirements: tuple[Document, ...]
    updates: tuple[Document, ...]


class Purge(Enum):
    """What happens to the files of a dropped table."""

    KEEP_FILES = "keep"
    REMOVE_FILES = "remove"


class Registration(Enum):
    """What to do when registering a table under a name that an Iceberg table already has."""

    REFUSE = "refuse"
    OVERWRITE = "overwrite"
