"""Changes to the rows and columns of a table, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RowUpdate:
    """New values by field path, as SQL expressions over the old row. Without a predicate: all rows."""

    values: Mapping[str, str]
    predicate: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowMerge:
    """What to do with rows that match on the key, with new rows, and with rows missing in the source.

    A condition restricts its update or delete.
    """

    on: tuple[str, ...]
    updates_matched: bool = False
    update_condition: str | None = None
    inserts_new: bool = False
    deletes_missing: bool = False
    delete_condition: str | None = None
    timeout: timedelta | None = None
    uses_index: bool = False


@dataclass(frozen=True, slots=True)
class EditResult:
    """The version with the change, and how many rows it changed."""

    version: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column that is filled once from an expression, for the existing rows."""

    name: str
    expression: str


@dataclass(frozen=True)
class ColumnAlteration:
    """Changes to the field at `path`. None means no change."""

    path: str
    rename: str | None = None
    nullable: bool | None = None
    data_type: pa.DataType | None = None

    @property
    def is_empty(self) -> bool:
        return self.rename is None and self.nullable is None and self.data_type is None


@dataclass(frozen=True, slots=True)
class FieldMetadataUpdate:
    """Metadata to set on the field at `path`. A None value removes the key."""

    path: str
    metadata: Mapping[str, str | None]
    is_replacement: bool = False


@dataclass(frozen=True, slots=True)
class UpdatedFields:
    """The new version, and the complete metadata of each updated field by canonical path."""

    version: int
    fields: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
