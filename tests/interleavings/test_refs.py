"""Restores and branches, raced in many orders.

pylance does the work inside the server. What it stages is not a step, since nobody else knows of it; every
call back into the catalog is, and so is the moment before it writes the reference of a new branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pytest

from tests.interleavings.model import (
    IMPOSSIBLE,
    Event,
    History,
    Impossible,
    Operation,
    Outcome,
    check_linearizable,
)
from tests.interleavings.scheduler import Action, Actor
from tests.interleavings.test_versions import with_second
from tests.interleavings.world import Deployment, Scenario, Server, World, walk
from tidemill.catalog.errors import (
    BranchAlreadyExists,
    BranchNotFound,
    ConcurrentModification,
    TableVersionAlreadyExists,
)
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Page
from tidemill.errors import InvalidInput, Unavailable
from tidemill.lance.versions.commit import Order

DIE: Final = Action.DIE
BRANCH: Final = "dev"
# A commit of pylance's looks at the table several times, so there are too many orders to try all of them.
DEEP_ORDERS: Final = 2_000

Line: TypeAlias = tuple[str, ...] | None
"""Who made the versions of the branch, from its first one on; None where there is no branch."""


@dataclass(frozen=True)
class Create:
    client: str

    def apply(self, state: Line, outcome: Outcome, result: object) -> Line | Impossible:
        match outcome:
            case Outcome.OK if state is None:
                return (self.client,)
            case Outcome.REFUSED if state is not None:
                return state
            case Outcome.UNDONE:
                return state
            case _:
                return IMPOSSIBLE

    def effects(self, state: Line) -> Sequence[Line]:
        return [(self.client,)] if state is None else []


@dataclass(frozen=True)
class Delete:
    def apply(self, state: Line, outcome: Outcome, result: object) -> Line | Impossible:
        match outcome:
            case Outcome.OK if state is not None:
                return None
            case Outcome.GONE if state is None:
                return None
        return IMPOSSIBLE

    def effects(self, state: Line) -> Sequence[Line]:
        return [] if state is None else [None]


@dataclass(frozen=True)
class Grow:
    """Commits the next version of the branch."""

    client: str

    def apply(self, state: Line, outcome: Outcome, result: object) -> Line | Impossible:
        match outcome:
            case Outcome.OK if state is not None:
                return (*state, self.client)
            case Outcome.GONE | Outcome.UNDONE if state is None:
                return None
        return IMPOSSIBLE

    def effects(self, state: Line) -> Sequence[Line]:
        return [] if state is None else [(*state, self.client)]


@dataclass(frozen=True)
class Look:
    """The versions of the branch."""

    def apply(self, state: Line, outcome: Outcome, result: object) -> Line | Impossible:
        match outcome:
            case Outcome.OK if result == state:
                return state
            case Outcome.GONE if state is None:
                return state
        return IMPOSSIBLE

    def effects(self, state: Line) -> Sequence[Line]:
        return []


@dataclass
class Branch:
    """A branch of the world's table, and what its clients do to it."""

    world: World
    start: Line = None
    history: History = field(default_factory=History)

    @classmethod
    def absent(cls, world: World) -> Branch:
        branch = cls(world)
        world.checks.append(branch.check)
        return branch

    @classmethod
    def present(cls, world: World) -> Branch:
        branch = cls.absent(world)
        world.label_staged(world.first, "start")
        world.first.refs.create_branch(LOCAL_CALLER, branch.ident, BRANCH, MAIN_BRANCH, 1)
        branch.start = ("start",)
        return branch

    @property
    def ident(self) -> TableIdent:
        return self.world.tables[0].table.ident

    def create(self, name: str, server: int, *faults: Action) -> Actor:
        def act(used: Server) -> None:
            self.world.label_staged(used, name)
            with self._told(name, Create(name)):
                self.world.alive(
                    name,
                    lambda: used.refs.create_branch(LOCAL_CALLER, self.ident, BRANCH, MAIN_BRANCH, 1),
                )

        return self.world.actor(name, server, act, *faults)

    def delete(self, name: str, server: int, *faults: Action) -> Actor:
        def act(used: Server) -> None:
            with self._told(name, Delete()):
                self.world.alive(name, lambda: used.refs.delete_branch(LOCAL_CALLER, self.ident, BRANCH))

        return self.world.actor(name, server, act, *faults)

    def grow(self, name: str, server: int, *faults: Action) -> Actor:
        """A commit of the server's own on the branch: here a restore of its first version."""

        def act(used: Server) -> None:
            self.world.label_staged(used, name)
            with self._told(name, Grow(name)):
                table = used.versions.get_branch(self.ident, BRANCH)
                self.world.alive(name, lambda: used.snapshots.restore(table, 1))

        return self.world.actor(name, server, act, *faults)

    def look(self, name: str, server: int) -> Actor:
        def act(used: Server) -> None:
            with self._told(name, Look()) as event:
                event.result = self._versions(used)

        return self.world.actor(name, server, act)

    def _versions(self, server: Server) -> Line:
        table = server.versions.get_branch(self.ident, BRANCH)
        listed = server.versions.list_versions(LOCAL_CALLER, table.ident, BRANCH, Order.ASCENDING, Page())
        labels = [self.world.labels[server.files.read(version.manifest_path)] for version in listed]
        return tuple(label.partition("'s ")[0] for label in labels)

    @contextmanager
    def _told(self, name: str, operation: Operation) -> Iterator[Event]:
        with self.history.recorded(name, operation) as event:
            try:
                yield event
            except (BranchAlreadyExists, TableVersionAlreadyExists):
                event.outcome = Outcome.REFUSED
            except BranchNotFound:
                event.outcome = Outcome.GONE
            except (ConcurrentModification, InvalidInput):
                event.outcome = Outcome.UNDONE
            except (Unavailable, OSError) as error:
                event.result = error
            else:
                event.outcome = Outcome.OK

    def check(self) -> None:
        first = self.world.first
        try:
            there = self._versions(first)
        except BranchNotFound:
            there = None
        check_linearizable(self.history, self.start, there)
        is_listed = BRANCH in first.refs.list_branches(LOCAL_CALLER, self.ident)
        was_killed = any(event.returned is None for event in self.history.events)
        assert is_listed == (there is not None) or was_killed, f"listed: {is_listed}, {there} is there"
        if there is not None:
            # Whatever a crash has left behind can be removed, and the name can be used again.
            first.refs.delete_branch(LOCAL_CALLER, self.ident, BRANCH)
        self.world.label_staged(first, "end")
        first.refs.create_branch(LOCAL_CALLER, self.ident, BRANCH, MAIN_BRANCH, 1)
        assert self._versions(first) == ("end",)


SCENARIOS: dict[str, Scenario] = {
    "a restore and a client": lambda w: [with_second(w).restore("a", 0, 1), w.commit("b", 1, 3)],
    "a restore that is killed and a client": lambda w: [
        with_second(w).restore("a", 0, 1, DIE),
        w.commit("b", 1, 3),
    ],
    "a restore and a writer by location": lambda w: [
        with_second(w).restore("a", 0, 1),
        w.write_by_location("w", 1, 3),
    ],
    "a restore and a listing": lambda w: [with_second(w).restore("a", 0, 1), w.list_all("r", 1)],
    "a restore and a reader": lambda w: [with_second(w).restore("a", 0, 1), w.read("r", 1, 3, None)],
    "two restores": lambda w: [with_second(w).restore("a", 0, 1), w.restore("b", 1, 1)],
    "two creations of a branch": lambda w: [
        (branch := Branch.absent(w)).create("a", 0),
        branch.create("b", 1),
    ],
    "a creation of a branch that is killed and another": lambda w: [
        (branch := Branch.absent(w)).create("a", 0, DIE),
        branch.create("b", 1),
    ],
    "a creation and a deletion of a branch": lambda w: [
        (branch := Branch.absent(w)).create("a", 0),
        branch.delete("d", 1),
    ],
    "a creation of a branch and a reader": lambda w: [
        (branch := Branch.absent(w)).create("a", 0, DIE),
        branch.look("r", 1),
    ],
    "two deletions of a branch": lambda w: [
        (branch := Branch.present(w)).delete("d", 0),
        branch.delete("e", 1),
    ],
    "a deletion of a branch that is killed and a reader": lambda w: [
        (branch := Branch.present(w)).delete("d", 0, DIE),
        branch.look("r", 1),
    ],
    "a deletion of a branch and a commit on it": lambda w: [
        (branch := Branch.present(w)).delete("d", 0),
        branch.grow("a", 1),
    ],
    "two commits on a branch": lambda w: [
        (branch := Branch.present(w)).grow("a", 0),
        branch.grow("b", 1),
    ],
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_one_order_explains_what_everybody_saw(deployment: Deployment, name: str) -> None:
    print(f"{name}: {walk(deployment, SCENARIOS[name], deployment.first_orders // 2)}")


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_one_order_explains_what_everybody_saw_in_many_orders(deployment: Deployment, name: str) -> None:
    print(f"{name}: {walk(deployment, SCENARIOS[name], DEEP_ORDERS)}")
