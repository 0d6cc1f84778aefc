"""Namespaces, and the identifiers of namespaces, tables and views."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from heapq import nlargest
from typing import Final, TypeAlias
from uuid import UUID

from tidemill.errors import InvalidInput

# Between the levels of a namespace in paths of the Iceberg protocol, unless the settings name another one.
LEVEL_SEPARATOR: Final = "\x1f"
MAX_LEVELS: Final = 16
MAX_NAME_BYTES: Final = 255
# URL libraries remove these two from paths, so clients could never address such a name.
UNREACHABLE_NAMES: Final = frozenset({".", ".."})


@dataclass(frozen=True, slots=True)
class NamespacePath:
    """The names from the root down to the namespace. Empty for the root."""

    levels: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join(self.levels) or "(root)"

    @property
    def is_root(self) -> bool:
        return not self.levels

    @property
    def name(self) -> str:
        return self.levels[-1]

    @property
    def parent(self) -> NamespacePath:
        return NamespacePath(self.levels[:-1])

    def child(self, name: str) -> NamespacePath:
        return NamespacePath((*self.levels, name))


ROOT_NAMESPACE: Final = NamespacePath()
ROOT_NAMESPACE_ID: Final = UUID(int=0)
# Geneva's clients keep their own tables here.
SYSTEM_NAMESPACE: Final = NamespacePath(("__system",))


@dataclass(frozen=True, slots=True)
class TableIdent:
    """The namespace of a table or view, and its name in it."""

    namespace: NamespacePath
    name: str

    def __str__(self) -> str:
        return ".".join((*self.namespace.levels, self.name))

    @property
    def levels(self) -> tuple[str, ...]:
        return (*self.namespace.levels, self.name)


@dataclass(frozen=True, slots=True)
class FunctionIdent:
    """The namespace of a function, and its name in it. A name stands for all versions of the function."""

    namespace: NamespacePath
    name: str

    def __str__(self) -> str:
        return ".".join((*self.namespace.levels, self.name))

    @property
    def levels(self) -> tuple[str, ...]:
        return (*self.namespace.levels, self.name)


# What permissions can be granted on.
Securable: TypeAlias = NamespacePath | TableIdent | FunctionIdent


def namespace_path(levels: tuple[str, ...], field: str = "id") -> NamespacePath:
    """Checks each level and returns the path."""
    if len(levels) > MAX_LEVELS:
        raise InvalidInput(field, f"has {len(levels)} levels; at most {MAX_LEVELS} are allowed")
    for level in levels:
        check_name(level, field)
    return NamespacePath(levels)


def table_ident(levels: tuple[str, ...], field: str = "id") -> TableIdent:
    """Checks each level and returns the identifier. The last level is the name."""
    if not levels:
        raise InvalidInput(field, "is the root namespace; name a table")
    path = namespace_path(levels, field)
    return TableIdent(path.parent, path.name)


def check_name(name: str, field: str) -> None:
    if not name:
        raise InvalidInput(field, "has an empty part; every level needs a name")
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise InvalidInput(field, "contains a lone surrogate, which is not valid Unicode")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidInput(field, f"has a part longer than {MAX_NAME_BYTES} bytes")
    if name in UNREACHABLE_NAMES or any(ord(character) < 0x20 for character in name):
        raise InvalidInput(
            field, f"{name!r} is not a valid name: '.', '..' and control characters are not allowed"
        )


MAX_COMPARED_LENGTH: Final = 64
MAX_COMPARED: Final = 5
MAX_CLOSE_NAMES: Final = 3


def close_names(name: str, known: Iterable[str], similarity: float = 0.7) -> list[str]:
    """The known names that this one may have been meant to be, the most similar first.

    A comparison takes a tenth of a millisecond, so it is made only with the few names that begin and end most
    like this one, and not at all with long names.
    """
    wanted = name.lower()
    if len(wanted) > MAX_COMPARED_LENGTH:
        return []
    by_lower_case = {other.lower(): other for other in known if len(other) <= MAX_COMPARED_LENGTH}
    if wanted in by_lower_case:
        return [by_lower_case[wanted]]
    candidates = nlargest(MAX_COMPARED, by_lower_case, key=lambda other: _same_ends(wanted, other))
    close = difflib.get_close_matches(wanted, candidates, MAX_CLOSE_NAMES, similarity)
    return [by_lower_case[match] for match in close]


def _same_ends(one: str, other: str) -> int:
    """How many characters two names have in common at the beginning and at the end."""
    return _same_start(one, other) + _same_start(one[::-1], other[::-1])


def _same_start(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


@dataclass(frozen=True, slots=True)
class Namespace:
    """A named container of tables, views and further namespaces.

    `location` is where new Iceberg tables and views go; filled in only where callers can see it.
    """

    namespace_id: UUID
    path: NamespacePath
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None


class CreateMode(Enum):
    """What to do if the name is taken."""

    CREATE = "Create"
    EXIST_OK = "ExistOk"
    OVERWRITE = "Overwrite"


class DropMode(Enum):
    """What to do if the namespace does not exist."""

    FAIL = "Fail"
    SKIP = "Skip"


class DependantPolicy(Enum):
    """What to do if views are made from what is dropped: refuse, drop them as well, or leave them broken."""

    RESTRICT = "restrict"
    CASCADE = "cascade"
    FORCE = "force"


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
