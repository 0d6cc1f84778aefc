"""Namespaces and the choices a caller has when making or dropping one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from tidemill.catalog.model.identifiers import NamespacePath


@dataclass(frozen=True, slots=True)
class Namespace:
    """A named place for tables, views and further namespaces."""

    namespace_id: UUID
    path: NamespacePath
    properties: Mapping[str, str] = field(default_factory=dict)


class CreateMode(Enum):
    """What to do when the name is taken."""

    CREATE = "Create"
    EXIST_OK = "ExistOk"
    OVERWRITE = "Overwrite"


class DropMode(Enum):
    """What to do when there is nothing to drop."""

    FAIL = "Fail"
    SKIP = "Skip"


class DropBehavior(Enum):
    """What to do with content."""

    RESTRICT = "Restrict"
    CASCADE = "Cascade"


@dataclass(frozen=True, slots=True)
class PropertyChanges:
    """Which properties a change has set, which it has removed, and which were not there to be removed."""

    updated: tuple[str, ...]
    removed: tuple[str, ...]
    missing: tuple[str, ...]
