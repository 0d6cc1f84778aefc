"""Namespaces, and the options for creating and dropping them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from tidemill.catalog.model.identifiers import NamespacePath


@dataclass(frozen=True, slots=True)
class Namespace:
    """A named container of tables, views and further namespaces."""

    namespace_id: UUID
    path: NamespacePath
    properties: Mapping[str, str] = field(default_factory=dict)


class CreateMode(Enum):
    """What to do if the name is taken."""

    CREATE = "Create"
    EXIST_OK = "ExistOk"
    OVERWRITE = "Overwrite"


class DropMode(Enum):
    """What to do if the namespace does not exist."""

    FAIL = "Fail"
    SKIP = "Skip"


class DropBehavior(Enum):
    """What to do if the namespace is not empty."""

    RESTRICT = "Restrict"
    CASCADE = "Cascade"


@dataclass(frozen=True, slots=True)
class PropertyChanges:
    """The properties that were set, those that were removed, and those to remove that did not exist."""

    updated: tuple[str, ...]
    removed: tuple[str, ...]
    missing: tuple[str, ...]
