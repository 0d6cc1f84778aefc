"""Runs several actors one step at a time, in every order that can make a difference.

An actor is a function in a thread of its own. Whatever it does to the database or to storage is a *step*: it
announces the step and waits until the scheduler grants it, so that exactly one actor moves at any time. A
schedule is the list of what was granted. `explore` runs the same actors again and again from a fresh start,
each time with another schedule, until every interleaving has been seen.

Two steps of different actors that touch nothing in common give the same result in either order. Of schedules
that differ only in the order of such steps one is enough: an actor is let go first only where a race was seen
(dynamic partial-order reduction, Flanagan and Godefroid 2005), and sleep sets leave out what is left of them.

A step can be granted in several ways (`Action`): done; not done, because the process was killed; done, but
the answer was lost; not done, and the process goes on. Which of them are tried is a property of the actor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic
from typing import Final

# An actor that was granted a step and announces no other waits for a lock that another actor holds.
BLOCKED_AFTER_SECONDS: Final = 0.25
STUCK_AFTER_SECONDS: Final = 30


class Action(Enum):
    """How a step is granted."""

    DO = "do"
    DIE = "die"
    LOSE_ANSWER = "lose answer"
    FAIL = "fail"


@dataclass(frozen=True)
class Step:
    """What an actor is about to do, and what that reads and writes."""

    name: str
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    def conflicts_with(self, other: Step) -> bool:
        return bool(self.writes & (other.reads | other.writes) or other.writes & self.reads)


@dataclass(frozen=True)
class Option:
    """One way to go on: this actor's next step, granted like this."""

    actor: str
    step: Step
    action: Action

    def commutes_with(self, other: Option) -> bool:
        if self.actor == other.actor:
            return False
        # A process that dies changes nothing for others.
        if Action.DIE in (self.action, other.action):
            return True
        return not self.step.conflicts_with(other.step)

    def __str__(self) -> str:
        manner = "" if self.action is Action.DO else f" [{self.action.value}]"
        return f"{self.actor}: {self.step.name}{manner}"


class Killed(BaseException):
    """The actor's process is gone: nothing catches this, and nothing it does afterwards has an effect."""


class Stuck(Exception):
    """No actor can move: they wait for each other."""


@dataclass
class Actor:
    """A name, what it does, and the faults that may befall it; each befalls it at most once in a run."""

    name: str
    run: Callable[[], None]
    faults: frozenset[Action] = frozenset()


@dataclass
class _State:
    actor: Actor
    waiting: Step | None = None
    granted: Action | None = None
    is_done: bool = False
    is_dead: bool = False
    faults_left: set[Action] = field(default_factory=set)
    error: BaseException | None = None


class Run:
    """One execution under one schedule; `choose` picks among the options, None gives the run up."""

    def __init__(self, choose: Callable[[Sequence[Option]], Option | None]) -> None:
        self._choose = choose
        self._changed = threading.Condition()
        self._states: dict[str, _State] = {}
        self._is_abandoned = False
        self.schedule: list[Option] = []

    def step(self, actor: str, step: Step) -> Action:
        """Called in the actor's place: announces the step, and returns how it is granted."""
        with self._changed:
            state = self._states[actor]
            if state.is_dead or self._is_abandoned:
                raise Killed
            state.waiting, state.granted = step, None
            self._changed.notify_all()
            while state.granted is None:
                self._changed.wait()
                if self._is_abandoned:
                    raise Killed
            state.waiting = None
            if state.granted is Action.DIE:
                state.is_dead = True
                raise Killed
            return state.granted

    def is_dead(self, actor: str) -> bool:
        return self._states[actor].is_dead or self._is_abandoned

    def carry_out(self, actors: Sequence[Actor]) -> bool:
        """Whether it came to its end; raises what an actor raised."""
        self._states = {actor.name: _State(actor, faults_left=set(actor.faults)) for actor in actors}
        threads = [
            threading.Thread(target=self._act, args=(state,), name=state.actor.name, daemon=True)
            for state in self._states.values()
        ]
        for thread in threads:
            thread.start()
        try:
            is_complete = self._drive()
        finally:
            with self._changed:
                self._is_abandoned = True
                self._changed.notify_all()
            for thread in threads:
                thread.join(STUCK_AFTER_SECONDS)
        for state in self._states.values():
            if state.error is not None and is_complete:
                raise AssertionError(f"{state.actor.name} raised {state.error!r}") from state.error
        return is_complete

    def _act(self, state: _State) -> None:
        try:
            state.actor.run()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - shown to whoever runs the schedule
            state.error = error
        finally:
            with self._changed:
                state.is_done = True
                state.waiting = None
                self._changed.notify_all()

    def _drive(self) -> bool:
        while True:
            options = self._options()
            if not options:
                return True
            chosen = self._choose(options)
            if chosen is None:
                return False
            self.schedule.append(chosen)
            with self._changed:
                state = self._states[chosen.actor]
                state.granted = chosen.action
                state.waiting = None
                state.faults_left.discard(chosen.action)
                self._changed.notify_all()

    def _options(self) -> Sequence[Option]:
        """What can be granted, once nobody moves any more; empty when all are done."""
        give_up_at = monotonic() + STUCK_AFTER_SECONDS
        with self._changed:
            while True:
                moving = [s for s in self._states.values() if not s.is_done and s.waiting is None]
                waiting = [s for s in self._states.values() if s.waiting is not None]
                if not moving:
                    break
                was_told = self._changed.wait(BLOCKED_AFTER_SECONDS)
                if not was_told and waiting:
                    # It waits for a lock; the others go on.
                    break
                if monotonic() > give_up_at:
                    names = ", ".join(state.actor.name for state in moving)
                    raise Stuck(f"{names} cannot go on after {self._told()}")
            return [
                Option(state.actor.name, state.waiting, action)
                for state in self._states.values()
                if state.waiting is not None
                for action in (Action.DO, *sorted(state.faults_left, key=lambda fault: fault.value))
            ]

    def _told(self) -> str:
        return "; ".join(map(str, self.schedule))


@dataclass
class _Node:
    """A point in the tree of schedules: what could be granted there, and what still has to be tried."""

    options: Sequence[Option]
    asleep: set[Option]
    chosen: Option
    wanted: set[str]
    explored: list[Option] = field(default_factory=list)

    def left(self) -> list[Option]:
        return [
            option
            for option in self.options
            if option.actor in self.wanted and option not in self.asleep and option not in self.explored
        ]


@dataclass
class Exploration:
    """What was seen so far."""

    runs: int = 0
    redundant: int = 0
    longest: int = 0

    def __str__(self) -> str:
        return f"{self.runs} interleavings of at most {self.longest} steps ({self.redundant} cut short)"


class Explorer:
    """Walks the tree of schedules depth first; a run follows the path to a node and goes on from there."""

    def __init__(self) -> None:
        self._path: list[_Node] = []
        self._depth = 0
        self._is_finished = False
        self.seen = Exploration()

    def runs(self, limit: int | None = None) -> Iterator[Run]:
        """To be carried out one after the other; `limit` is a bound on how many."""
        while not self._is_finished and (limit is None or self.seen.runs < limit):
            self._depth = 0
            run = Run(self._choose)
            yield run
            self.seen.longest = max(self.seen.longest, len(run.schedule))
            del self._path[len(run.schedule) :]
            self._want_races_reversed()
            self._backtrack()

    def _choose(self, options: Sequence[Option]) -> Option | None:
        depth, self._depth = self._depth, self._depth + 1
        if depth < len(self._path):
            node = self._path[depth]
            if node.chosen in options:
                return node.chosen
            # A lock was waited for longer or shorter than the last time: from here on it is another path.
            del self._path[depth:]
        asleep = self._asleep_after(depth)
        awake = [option for option in options if option not in asleep]
        if not awake:
            self.seen.redundant += 1
            return None
        self._path.append(_Node(options, asleep, awake[0], {awake[0].actor}))
        return awake[0]

    def _asleep_after(self, depth: int) -> set[Option]:
        if depth == 0:
            return set()
        node = self._path[depth - 1]
        return {
            option
            for option in (*node.asleep, *node.explored)
            if option != node.chosen and option.commutes_with(node.chosen)
        }

    def _want_races_reversed(self) -> None:
        """Where two steps could as well have come the other way round, the other actor has to go first."""
        chosen = [node.chosen for node in self._path]
        before = _happens_before(chosen)
        for later, option in enumerate(chosen):
            for earlier in range(later):
                if chosen[earlier].commutes_with(option) or chosen[earlier].actor == option.actor:
                    continue
                between = range(earlier + 1, later)
                if any(before[k] >> earlier & 1 and before[later] >> k & 1 for k in between):
                    continue
                node = self._path[earlier]
                enabled = {other.actor for other in node.options}
                node.wanted |= {option.actor} if option.actor in enabled else enabled

    def _backtrack(self) -> None:
        self.seen.runs += 1
        while self._path:
            node = self._path[-1]
            node.explored.append(node.chosen)
            left = node.left()
            if left:
                node.chosen = left[0]
                return
            self._path.pop()
        self._is_finished = True


def _happens_before(chosen: Sequence[Option]) -> list[int]:
    """For each step the set of steps, as bits, that have to come before it in every equivalent schedule."""
    before: list[int] = []
    for later, option in enumerate(chosen):
        known = 0
        for earlier in range(later):
            if not chosen[earlier].commutes_with(option):
                known |= before[earlier] | 1 << earlier
        before.append(known)
    return before


def explore(
    start: Callable[[Run], tuple[Sequence[Actor], Callable[[], None]]], limit: int | None = None
) -> Exploration:
    """`start` makes a fresh world for a run and returns its actors and a check of what they left behind.

    Raises AssertionError with the schedule that led to it.
    """
    explorer = Explorer()
    for run in explorer.runs(limit):
        actors, check = start(run)
        try:
            if run.carry_out(actors):
                check()
        except AssertionError as error:
            steps = "\n  ".join(map(str, run.schedule))
            raise AssertionError(f"{error}\nafter {explorer.seen.runs} other runs, by\n  {steps}") from error
    return explorer.seen


def footprint(reads: Sequence[str] = (), writes: Sequence[str] = ()) -> Mapping[str, frozenset[str]]:
    return {"reads": frozenset(reads), "writes": frozenset(writes)}
