"""The Iceberg catalog as its clients see it: what each request does to a catalog that nobody else uses.

A catalog is a set of names, each with the content of what it stands for, and a set of receipts. Every request
says which answers it may get in a state and what the state is afterwards; `model.check_linearizable` finds
out whether some order of requests gives the answers that clients got.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from tests.interleavings.model import IMPOSSIBLE, Impossible, Outcome

SCHEMA_ID: Final = "#schema"
MAIN_BRANCH: Final = "#main"
SQL: Final = "#sql"

UNAVAILABLE: Final = 503

Content: TypeAlias = frozenset[tuple[str, str]]
"""Properties, and under names with a number sign the current schema, snapshot or query."""

Answer: TypeAlias = tuple[int, Content | None]
"""The status, and what the answer says about the table or view."""


class Kind(Enum):
    TABLE = "tables"
    VIEW = "views"
    LANCE = "lance"


@dataclass(frozen=True)
class Named:
    """A table or view under its name."""

    kind: Kind
    content: Content


Names: TypeAlias = frozenset[tuple[str, Named]]
Outcomes: TypeAlias = Sequence[tuple[Answer, Names]]


def content(**values: str) -> Content:
    return frozenset(values.items())


def _with(names: Names, name: str, named: Named | None) -> Names:
    others = frozenset(item for item in names if item[0] != name)
    return others if named is None else others | {(name, named)}


def _find(names: Names, name: str, kind: Kind) -> Named | None:
    found = dict(names).get(name)
    return found if found is not None and found.kind is kind else None


@dataclass(frozen=True)
class Change:
    """What a commit sets in one table or view, and what it requires there; a value of None is absence."""

    name: str
    sets: tuple[tuple[str, str], ...] = ()
    requires: tuple[tuple[str, str | None], ...] = ()
    kind: Kind = Kind.TABLE


@dataclass(frozen=True)
class Commit:
    """To one table or view."""

    change: Change

    def outcomes(self, names: Names) -> Outcomes:
        status, after = _applied(self.change, names)
        return [((status, dict(after)[self.change.name].content if status == 200 else None), after)]


@dataclass(frozen=True)
class CommitAll:
    """To several tables, or to none of them."""

    changes: tuple[Change, ...]

    def outcomes(self, names: Names) -> Outcomes:
        after = names
        for change in self.changes:
            status, after = _applied(change, after)
            if status != 200:
                return [((status, None), names)]
        return [((204, None), after)]


def _applied(change: Change, names: Names) -> tuple[int, Names]:
    found = _find(names, change.name, change.kind)
    if found is None:
        return 404, names
    values = dict(found.content)
    if any(values.get(key) != value for key, value in change.requires):
        return 409, names
    changed = replace(found, content=frozenset({**values, **dict(change.sets)}.items()))
    return 200, _with(names, change.name, changed)


@dataclass(frozen=True)
class Create:
    name: str
    named: Named

    def outcomes(self, names: Names) -> Outcomes:
        if self.name in dict(names):
            return [((409, None), names)]
        shown = None if self.named.kind is Kind.LANCE else self.named.content
        return [((200, shown), _with(names, self.name, self.named))]


@dataclass(frozen=True)
class Overwrite:
    """Registers other metadata under a name.

    A client whose rival was faster is told to try again; one whose file a rival removed, that it is missing.
    """

    name: str
    content: Content

    def outcomes(self, names: Names) -> Outcomes:
        held = dict(names).get(self.name)
        if held is not None and held.kind is not Kind.TABLE:
            return [((409, None), names)]
        after = _with(names, self.name, Named(Kind.TABLE, self.content))
        return [((200, self.content), after), ((409, None), names), ((404, None), names)]


@dataclass(frozen=True)
class Drop:
    name: str
    kind: Kind = Kind.TABLE
    removes_files: bool = False

    def outcomes(self, names: Names) -> Outcomes:
        if _find(names, self.name, self.kind) is None:
            return [((404, None), names)]
        return [((204, None), _with(names, self.name, None))]


@dataclass(frozen=True)
class Rename:
    source: str
    target: str
    kind: Kind = Kind.TABLE

    def outcomes(self, names: Names) -> Outcomes:
        found = _find(names, self.source, self.kind)
        if found is None:
            return [((404, None), names)]
        if self.target in dict(names):
            return [((409, None), names)]
        return [((204, None), _with(_with(names, self.source, None), self.target, found))]


@dataclass(frozen=True)
class Load:
    name: str
    kind: Kind = Kind.TABLE

    def outcomes(self, names: Names) -> Outcomes:
        found = _find(names, self.name, self.kind)
        return [((404, None) if found is None else (200, found.content), names)]


Operation: TypeAlias = Commit | CommitAll | Create | Overwrite | Drop | Rename | Load


@dataclass(frozen=True)
class Catalog:
    """The state of the model; receipts are keys with the request they are bound to and its answer."""

    names: Names = frozenset()
    receipts: frozenset[tuple[str, Operation, Answer]] = frozenset()

    @classmethod
    def of(cls, names: Mapping[str, Named]) -> Catalog:
        return cls(frozenset(names.items()))


@dataclass(frozen=True)
class Request:
    """An operation, with an Idempotency-Key or without.

    An answer of Unavailable promises that nothing was done; a refusal may have been recorded all the same.
    """

    does: Operation
    key: str | None = None
    is_unavailable: bool = False

    def apply(self, state: Catalog, outcome: Outcome, result: object) -> Catalog | Impossible:
        return next((after for answer, after in self._outcomes(state) if answer == result), IMPOSSIBLE)

    def effects(self, state: Catalog) -> Sequence[Catalog]:
        changed = [after for _, after in self._outcomes(state) if after != state]
        return [after for after in changed if after.names == state.names or not self.is_unavailable]

    def _outcomes(self, state: Catalog) -> Sequence[tuple[Answer, Catalog]]:
        for key, does, answer in state.receipts:
            if key == self.key:
                return [(answer if does == self.does else (422, None), state)]
        return [
            (answer, self._after(state, answer, names)) for answer, names in self.does.outcomes(state.names)
        ]

    def _after(self, state: Catalog, answer: Answer, names: Names) -> Catalog:
        if self.key is None:
            return Catalog(names, state.receipts)
        return Catalog(names, state.receipts | {(self.key, self.does, answer)})

    def __str__(self) -> str:
        key = "" if self.key is None else f" with key {self.key}"
        return f"{self.does}{key}{' (unavailable)' if self.is_unavailable else ''}"
