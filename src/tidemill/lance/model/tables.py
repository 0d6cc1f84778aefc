"""What callers ask of whole tables, and what they are told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from tidemill.catalog.model.tables import Table, TableVersion
from tidemill.errors import InvalidInput


class RegisterMode(Enum):
    """What to do if the name of the table to register is taken."""

    CREATE = "Create"
    OVERWRITE = "Overwrite"


class InsertMode(Enum):
    APPEND = "append"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class TablePoint:
    """A state of a table: a tag, or a version of a branch. By default the latest version of main."""

    version: int | None = None
    tag: str | None = None
    branch: str | None = None

    def __post_init__(self) -> None:
        if self.tag is not None and not (self.version is None and self.branch is None):
            raise InvalidInput("tag", "cannot be combined with version or branch")


@dataclass(frozen=True, slots=True)
class TableSummary:
    """Counts that can be read from the manifest of a version alone."""

    deleted_rows: int
    fragments: int


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Statistics of one version. `fragment_rows` are the numbers of rows written to each fragment, sorted."""

    rows: int
    bytes_on_disk: int
    indices: int
    fragment_rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table with its schema at one version. Without a version the table has no data."""

    table: Table
    version: TableVersion | None
    schema: pa.Schema | None
