"""Changes of a table's columns, as callers ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column that an expression fills once, for the rows there are."""

    name: str
    expression: str


@dataclass(frozen=True)
class ColumnAlteration:
    """What changes about the field at `path`; None leaves it as it is."""

    path: str
    rename: str | None = None
    nullable: bool | None = None
    data_type: pa.DataType | None = None

    @property
    def is_empty(self) -> bool:
        return self.rename is None and self.nullable is None and self.data_type is None


@dataclass(frozen=True, slots=True)
class FieldMetadataUpdate:
    """Metadata to put on the field at `path`; a None value takes the key away."""

    path: str
    metadata: Mapping[str, str | None]
    is_replacement: bool = False


@dataclass(frozen=True, slots=True)
class UpdatedFields:
    """The version that was made, and the whole metadata of each updated field by its canonical path."""

    version: int
    fields: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
