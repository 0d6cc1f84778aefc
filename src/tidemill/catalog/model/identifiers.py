"""Names of things in the catalog, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemill.errors import InvalidInput

MAX_LEVELS: Final = 16
MAX_NAME_BYTES: Final = 255
# Every URL library rewrites these two away, so an object with such a name could never be reached.
UNREACHABLE_NAMES: Final = frozenset({".", ".."})


@dataclass(frozen=True, slots=True)
class NamespacePath:
    """Where a namespace is: its name and the names above it; empty means the root."""

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


# Where Geneva's clients keep tables of their own.
SYSTEM_NAMESPACE: Final = NamespacePath(("__system",))


@dataclass(frozen=True, slots=True)
class TableIdent:
    """Where a table or view is: the namespace that holds it and its name there."""

    namespace: NamespacePath
    name: str

    def __str__(self) -> str:
        return ".".join((*self.namespace.levels, self.name))

    @property
    def levels(self) -> tuple[str, ...]:
        return (*self.namespace.levels, self.name)


def namespace_path(levels: tuple[str, ...], field: str = "id") -> NamespacePath:
    """The path of those levels, each checked."""
    if len(levels) > MAX_LEVELS:
        raise InvalidInput(field, f"has {len(levels)} levels, at most {MAX_LEVELS} are allowed")
    for level in levels:
        check_name(level, field)
    return NamespacePath(levels)


def table_ident(levels: tuple[str, ...], field: str = "id") -> TableIdent:
    """The table at those levels, the last being its name, each checked."""
    if not levels:
        raise InvalidInput(field, "names the root namespace where a table is needed")
    path = namespace_path(levels, field)
    return TableIdent(path.parent, path.name)


def check_name(name: str, field: str) -> None:
    if not name:
        raise InvalidInput(field, "has an empty part; every level needs a name")
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise InvalidInput(field, "has half of a character (a lone surrogate)")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidInput(field, f"has a part longer than {MAX_NAME_BYTES} bytes")
    if name in UNREACHABLE_NAMES or any(ord(character) < 0x20 for character in name):
        raise InvalidInput(
            field, f"{name!r} is not a usable name: '.', '..' and control characters are refused"
        )
