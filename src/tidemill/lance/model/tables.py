"""What callers ask of whole tables, and what they are told: states, tags, branches, statistics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final

import pyarrow as pa

from tidemill.catalog.model.tables import MAIN_BRANCH, Table, TableVersion
from tidemill.errors import InvalidInput

MAX_REF_LENGTH: Final = 200
# Lance accepts letters of any script here, but then cannot list the references.
REF_PART: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
REF_FORM: Final = "it must consist of ASCII letters, digits, '.', '_' and '-', and must not start with '.'"


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


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for one version of one branch."""

    name: str
    version: int
    manifest_size: int
    branch: str = MAIN_BRANCH


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of versions that starts at a version of another branch."""

    name: str
    parent_branch: str
    parent_version: int
    created_at: datetime
    manifest_size: int
    metadata: Mapping[str, str] = field(default_factory=dict)


def check_tag_name(name: str) -> None:
    if not _is_usable(name):
        raise InvalidInput("tag", f"{name!r:.80} is not a valid name: {REF_FORM}")


def check_branch_name(name: str, field: str = "branch") -> None:
    if len(name) > MAX_REF_LENGTH or not all(map(_is_usable, name.split("/"))):
        raise InvalidInput(field, f"{name!r:.80} is not a valid name: between slashes {REF_FORM}")


def _is_usable(part: str) -> bool:
    is_formed = len(part) <= MAX_REF_LENGTH and REF_PART.fullmatch(part) is not None
    return is_formed and ".." not in part and not part.endswith(".lock")
