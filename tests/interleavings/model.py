"""What a table is to its clients, and whether what they saw can be explained by one order of operations.

The model is a sequence of manifests: version n holds the content of whoever committed n, for ever. Operations
of one history overlap; the history is linearizable if each of them can be given a moment between its call and
its return so that, one after the other, they do what the model does (Herlihy and Wing 1990). An operation
whose outcome nobody knows may have happened at any moment after its call, or never.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

State: TypeAlias = tuple[str | None, ...] | None
"""Contents of the versions from 1 on, None for those that were cleaned up; no sequence: a dropped table."""


class Outcome(Enum):
    """What a client was told: GONE is that there is no such table, UNDONE that a batch failed elsewhere."""

    OK = "ok"
    REFUSED = "refused"
    UNDONE = "undone"
    GONE = "gone"
    UNKNOWN = "unknown"


class Impossible(Enum):
    """No state: an operation cannot have ended like this where it was tried."""

    HERE = "here"


class Anything(Enum):
    """A state that nobody looked at."""

    GOES = "goes"


IMPOSSIBLE: Final = Impossible.HERE
ANYTHING: Final = Anything.GOES


@dataclass(frozen=True)
class Put:
    """Commits content as a version, if there is none of that number."""

    version: int
    content: str

    def apply(self, state: State, outcome: Outcome, result: object) -> State | Impossible:
        if outcome is Outcome.UNDONE:
            return state
        if state is None:
            return state if outcome is Outcome.GONE else IMPOSSIBLE
        is_there = self.version <= len(state)
        is_done = is_there and state[self.version - 1] == self.content
        match outcome:
            case Outcome.OK if is_done:
                # Sent again after it was done, it is done already.
                return state
            case Outcome.OK if self.version == len(state) + 1:
                return (*state, self.content)
            case Outcome.REFUSED if is_there and not is_done:
                return state
        return IMPOSSIBLE

    def effects(self, state: State) -> Sequence[State]:
        """States that an unknown outcome may lead to, other than the present one."""
        is_next = state is not None and self.version == len(state) + 1
        return [(*state, self.content)] if state is not None and is_next else []


@dataclass(frozen=True)
class Withdraw:
    """Takes back the content of a batch that failed, if it was there at all and nothing builds on it."""

    version: int
    content: str

    def apply(self, state: State, outcome: Outcome, result: object) -> State | Impossible:
        return IMPOSSIBLE

    def effects(self, state: State) -> Sequence[State]:
        is_latest = state is not None and len(state) == self.version and state[-1] == self.content
        return [state[:-1]] if state is not None and is_latest else []


@dataclass(frozen=True)
class Append:
    """Commits content of a client as the next version, whatever its number, which is the result."""

    client: str

    def apply(self, state: State, outcome: Outcome, result: object) -> State | Impossible:
        if outcome is Outcome.UNDONE:
            return state
        if state is None:
            return state if outcome is Outcome.GONE else IMPOSSIBLE
        is_next = outcome is Outcome.OK and result == len(state) + 1
        return (*state, f"{self.client}'s {result}") if is_next else IMPOSSIBLE

    def effects(self, state: State) -> Sequence[State]:
        return [] if state is None else [(*state, f"{self.client}'s {len(state) + 1}")]


@dataclass(frozen=True)
class Read:
    """The content of a version, None if there is none; without a number the latest and its number."""

    version: int | None = None

    def apply(self, state: State, outcome: Outcome, result: object) -> State | Impossible:
        if state is None:
            return state if outcome is Outcome.GONE else IMPOSSIBLE
        expected: object
        if self.version is None:
            expected = (len(state), state[-1]) if state else None
        else:
            expected = state[self.version - 1] if self.version <= len(state) else None
        return state if outcome is Outcome.OK and result == expected else IMPOSSIBLE

    def effects(self, state: State) -> Sequence[State]:
        return []


@dataclass(frozen=True)
class List:
    """The numbers of all versions."""

    def apply(self, state: State, outcome: Outcome, result: object) -> State | Impossible:
        if state is None:
            return state if outcome is Outcome.GONE else IMPOSSIBLE
        expected = [number for number, content in enumerate(state, start=1) if content is not None]
        return state if outcome is Outcome.OK and result == expected else IMPOSSIBLE

    def effects(self, state: State) -> Sequence[State]:
        return []


@dataclass(frozen=True)
class Clean:
    """Removes a version that is not the latest."""

    version: int

    def apply(self, state: State, outcome: Outcome, result: object) -> State | Impossible:
        if state is None:
            return state if outcome is Outcome.GONE else IMPOSSIBLE
        is_old = self.version < len(state)
        if outcome is Outcome.REFUSED:
            return IMPOSSIBLE if is_old else state
        return self._cleaned(state) if is_old else IMPOSSIBLE

    def effects(self, state: State) -> Sequence[State]:
        return [] if state is None or self.version >= len(state) else [self._cleaned(state)]

    def _cleaned(self, state: tuple[str | None, ...]) -> State:
        return (*state[: self.version - 1], None, *state[self.version :])


@dataclass(frozen=True)
class Drop:
    """Removes the table."""

    def apply(self, state: State, outcome: Outcome, result: object) -> State | Impossible:
        if state is None:
            return state if outcome is Outcome.GONE else IMPOSSIBLE
        return None if outcome is Outcome.OK else IMPOSSIBLE

    def effects(self, state: State) -> Sequence[State]:
        return [None]


class Operation(Protocol):
    """What a client does to a state of some model."""

    def apply(self, state: Any, outcome: Outcome, result: object) -> Any:
        """The state afterwards; IMPOSSIBLE when the operation cannot have this outcome in this state."""

    def effects(self, state: Any) -> Sequence[Any]: ...


@dataclass
class Event:
    """One operation as its client saw it; `returned` is None while it runs."""

    client: str
    operation: Operation
    called: int
    returned: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    result: object = None

    def __str__(self) -> str:
        span = f"{self.called}-{'' if self.returned is None else self.returned}"
        return f"[{span}] {self.client} {self.operation} -> {self.outcome.value} {self.result or ''}"


@dataclass
class History:
    """Operations in the order of their calls; an operation that never returns stays unknown."""

    events: list[Event] = field(default_factory=list)
    _moment: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def recorded(self, client: str, operation: Operation) -> Iterator[Event]:
        with self._lock:
            self._moment += 1
            event = Event(client, operation, self._moment)
            self.events.append(event)
        yield event
        with self._lock:
            self._moment += 1
            event.returned = self._moment

    def __str__(self) -> str:
        return "\n  ".join(map(str, self.events))


def check_linearizable(history: History, start: Hashable, end: Hashable = ANYTHING) -> None:
    """Raises AssertionError; `end` is what was there when all was over, if that is not in the history."""
    if not _has_order(tuple(history.events), start, end, set()):
        raise AssertionError(f"no order of operations explains\n  {history}\nthat ends in {end}")


def _has_order(
    left: tuple[Event, ...],
    state: Hashable,
    end: Hashable,
    failed: set[tuple[frozenset[int], Hashable]],
) -> bool:
    known = [event for event in left if event.outcome is not Outcome.UNKNOWN]
    if not known and end in (state, ANYTHING):
        return True
    key = (frozenset(event.called for event in left), state)
    if key in failed:
        return False
    # Only an operation that was called before all others returned can be the next.
    first_return = min((event.returned for event in known if event.returned is not None), default=None)
    for event in left:
        if first_return is not None and event.called > first_return:
            continue
        rest = tuple(other for other in left if other is not event)
        for after in _outcomes(event, state):
            if _has_order(rest, after, end, failed):
                return True
    failed.add(key)
    return False


def _outcomes(event: Event, state: Hashable) -> Sequence[Hashable]:
    if event.outcome is Outcome.UNKNOWN:
        return event.operation.effects(state)
    after = event.operation.apply(state, event.outcome, event.result)
    return [] if isinstance(after, Impossible) else [after]
