"""Checks that a concurrent history of a put-once register is linearizable.

A version of a table is such a register: it is empty until one commit succeeds, and then keeps the content of
that commit forever. A history holds what clients did, each operation with the moment before it was sent and
the moment after its answer came. It is linearizable if every operation can be given one instant between the
two so that, executed one after the other in that order, each would have got the answer it got.

    put v  DONE      the register was empty and holds v from then on
    put v  REFUSED   the register held another value
    put v  UNKNOWN   no answer: it takes effect at any time after it was sent, or never
    get    v / None  the register held v, or was empty

The search is Wing and Gong's, with Lowe's cache of configurations already tried: take an operation that no
remaining one has to precede, apply it, continue; backtrack when stuck. Linearizability is local, so each
register is checked on its own, which keeps the searches small.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import TypeAlias, TypeVar


class Result(Enum):
    """What a client knows about a put."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Put:
    invoked: float
    returned: float
    value: str
    result: Result

    @property
    def deadline(self) -> float:
        """Until when it must have taken effect; one without an answer may still be on its way."""
        return inf if self.result is Result.UNKNOWN else self.returned

    @property
    def is_optional(self) -> bool:
        return self.result is Result.UNKNOWN


@dataclass(frozen=True, slots=True)
class Get:
    invoked: float
    returned: float
    value: str | None

    @property
    def deadline(self) -> float:
        return self.returned

    @property
    def is_optional(self) -> bool:
        return False


Operation: TypeAlias = Put | Get
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class _Illegal:
    """Marks an operation that cannot have got its answer in a state."""


_ILLEGAL = _Illegal()


def find_violations(
    histories: Mapping[Key, Sequence[Operation]], initial: Mapping[Key, str] | None = None
) -> list[Key]:
    """The registers whose histories no sequential order explains."""
    values = initial or {}
    return [
        register
        for register, operations in histories.items()
        if find_order(operations, values.get(register)) is None
    ]


def find_order(operations: Iterable[Operation], initial: str | None = None) -> list[Operation] | None:
    """A valid order, without the unknown puts that never took effect; None if there is none."""
    pending = tuple(sorted(operations, key=lambda operation: operation.invoked))
    tried: set[tuple[frozenset[int], str | None]] = set()
    stack: list[tuple[frozenset[int], str | None, tuple[Operation, ...]]] = [
        (frozenset(range(len(pending))), initial, ())
    ]
    while stack:
        left, state, order = _apply_harmless(pending, *stack.pop())
        if all(pending[index].is_optional for index in left):
            return list(order)
        if (left, state) in tried:
            continue
        tried.add((left, state))
        for index in _first(pending, left):
            after = _step(state, pending[index])
            if not isinstance(after, _Illegal):
                stack.append((left - {index}, after, (*order, pending[index])))
    return None


def _apply_harmless(
    pending: Sequence[Operation], left: frozenset[int], state: str | None, order: tuple[Operation, ...]
) -> tuple[frozenset[int], str | None, tuple[Operation, ...]]:
    """Takes every operation that may come next and changes nothing.

    Any valid order stays valid when such an operation is moved to its front, so no alternative is lost.
    """
    while True:
        harmless = [
            index
            for index in _first(pending, left)
            if not pending[index].is_optional and _step(state, pending[index]) == state
        ]
        if not harmless:
            return left, state, order
        left -= frozenset(harmless)
        order += tuple(pending[index] for index in harmless)


def _first(pending: Sequence[Operation], left: frozenset[int]) -> list[int]:
    """Operations that may come next: sent before any of the others had to be finished."""
    deadline = min((pending[index].deadline for index in left), default=inf)
    return [index for index in sorted(left) if pending[index].invoked <= deadline]


def _step(state: str | None, operation: Operation) -> str | _Illegal | None:
    """The register's value after the operation, if the operation can have got its answer there."""
    match operation:
        case Get(value=value):
            return state if state == value else _ILLEGAL
        case Put(value=value, result=Result.REFUSED):
            return state if state is not None and state != value else _ILLEGAL
        case Put(value=value):
            return value if state is None else _ILLEGAL
