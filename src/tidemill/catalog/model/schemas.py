"""Changes to the columns of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa


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
