"""Iceberg tables and views as the catalog keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias
from uuid import UUID

from tidemill.catalog.model.identifiers import TableIdent

Document: TypeAlias = dict[str, Any]
"""A JSON object of the Iceberg specifications, with every field it came with."""


class EntryKind(Enum):
    TABLE = "iceberg_table"
    VIEW = "iceberg_view"


class Holder(Enum):
    """What a name stands for; LANCE is a table, materialized view or stored query of the Lance protocol."""

    LANCE = "lance"
    ICEBERG_TABLE = "iceberg_table"
    ICEBERG_VIEW = "iceberg_view"


@dataclass(frozen=True, slots=True)
class Entry:
    """A table or view at one state: `metadata` is its document as JSON, ready to be served.

    `place` is its location in the one form that overlaps are judged by; the document has the client's form.
    """

    entry_id: UUID
    ident: TableIdent
    kind: EntryKind
    place: str
    metadata_location: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class EntryState:
    """Where the metadata of a table or view is, and what it says."""

    metadata_location: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class StagedTable:
    """A table that is described and not made yet; the commit that makes it brings everything again."""

    ident: TableIdent
    place: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class NewTable:
    """What a client says of a table to be created; ids in the schema are the client's and are given anew."""

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
    """Updates of one table or view, and what has to hold for them to be applied."""

    ident: TableIdent
    requirements: tuple[Document, ...]
    updates: tuple[Document, ...]


class Purge(Enum):
    """What becomes of the files of a dropped table."""

    KEEP_FILES = "keep"
    REMOVE_FILES = "remove"


class Registration(Enum):
    """What to do when the name of a table to register is taken by an Iceberg table."""

    REFUSE = "refuse"
    OVERWRITE = "overwrite"
