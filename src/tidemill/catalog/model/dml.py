"""Changes to the rows of a table, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class RowUpdate:
    """New values by field path, as SQL expressions over the old row; no predicate means every row."""

    values: Mapping[str, str]
    predicate: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowMerge:
    """What to do with rows that match on the key, with new ones, and with those that are not in the source.

    A condition narrows the update or the delete that it belongs to.
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
    """Rows changed, and the version that has the change."""

    version: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
