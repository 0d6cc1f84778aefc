"""Commits of table versions, raced in every order.

There are up to thousands of orders: the normal run takes the first of each scenario, `make test-deep` all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.interleavings.model import Put
from tests.interleavings.scheduler import Action, Actor
from tests.interleavings.world import Deployment, Scenario, World, walk
from tidemill.catalog.model.tables import VersionEntry

DIE, LOSE = Action.DIE, Action.LOSE_ANSWER


def interrupted(world: World, *, has_effect: bool = False) -> VersionEntry:
    """A reservation whose process died before it published anything."""
    entry = world.stage("dead's 2", 2)
    table = world.tables[0].table

    def record(tx: object, _: int) -> None:
        tx.tables.set_properties(table.table_id, {"recorded": "dead's 2"})  # type: ignore[attr-defined]

    server = world.first
    with server.store.transaction() as tx:
        staged = server.versions.check_content(table, entry)
        server.versions.add(tx, table, entry, staged, record if has_effect else None)
    if has_effect:
        world.checks.append(lambda: world.check_recorded("dead's 2"))
    # It was called and never returned.
    with world.tables[0].history.recorded("dead", _put("dead's 2")):
        pass
    world.tables[0].history.events[-1].returned = None
    return entry


def _put(content: str) -> Put:
    return Put(2, content)


TWO: dict[str, Scenario] = {
    "two clients": lambda w: [w.commit("a", 0, 2), w.commit("b", 1, 2)],
    "a client and a writer by location": lambda w: [w.commit("a", 0, 2), w.write_by_location("w", 1, 2)],
    "a client and a reader": lambda w: [w.commit("a", 0, 2), w.read("r", 1, 2, None)],
    "a client and a listing": lambda w: [w.commit("a", 0, 2), w.list_all("r", 1)],
    "a client that is killed and another": lambda w: [w.commit("a", 0, 2, DIE), w.commit("b", 1, 2)],
    "a client that is killed and a writer by location": lambda w: [
        w.commit("a", 0, 2, DIE),
        w.write_by_location("w", 1, 2),
    ],
    "a client whose answers are lost and a writer by location": lambda w: [
        w.commit("a", 0, 2, LOSE),
        w.write_by_location("w", 1, 2),
    ],
    "a client that asks again and a writer by location": lambda w: [
        w.commit_twice("a", 0, 2, 2, LOSE),
        w.write_by_location("w", 1, 2),
    ],
    "a commit with an effect and a writer by location": lambda w: [
        w.commit_with_effect("a", 0, 2),
        w.write_by_location("w", 1, 2),
    ],
    "a commit with an effect that is killed and a writer by location": lambda w: [
        w.commit_with_effect("a", 0, 2, DIE, LOSE),
        w.write_by_location("w", 1, 2),
    ],
    "a commit with an effect and a client": lambda w: [w.commit_with_effect("a", 0, 2), w.commit("b", 1, 2)],
    "a commit with an effect and a reader": lambda w: [
        w.commit_with_effect("a", 0, 2, DIE),
        w.read_recorded("r", 1),
    ],
    "a commit with an effect and a listing": lambda w: [
        w.commit_with_effect("a", 0, 2, DIE),
        w.list_all("r", 1),
    ],
    "two commits with an effect": lambda w: [
        w.commit_with_effect("a", 0, 2),
        w.commit_with_effect("b", 1, 2),
    ],
    "clean-up and a listing": lambda w: [with_second(w).clean_by_location("c", 0, 1), w.list_all("r", 1)],
    "clean-up and a client": lambda w: [with_second(w).clean_by_location("c", 0, 1), w.commit("a", 1, 3)],
    "clean-up and a reader": lambda w: [with_second(w).clean_by_location("c", 0, 1), w.read("r", 1, 1)],
    "a writer by location that cleans up behind itself and a reader": lambda w: [
        w.write_and_clean_by_location("w", 0, 2, 3),
        w.read("r", 1, None),
    ],
    "a writer by location that cleans up behind itself and a listing": lambda w: [
        w.write_and_clean_by_location("w", 0, 2, 3),
        w.list_all("r", 1),
    ],
    "a writer by location that cleans up behind itself and a client": lambda w: [
        w.write_and_clean_by_location("w", 0, 2, 3),
        w.commit("a", 1, 2),
    ],
    "deletion and a listing": lambda w: [with_second(w).delete_version("d", 0, 1), w.list_all("r", 1)],
    "deletion that is killed and a listing": lambda w: [
        with_second(w).delete_version("d", 0, 1, DIE),
        w.list_all("r", 1),
    ],
    "deletion and a client": lambda w: [with_second(w).delete_version("d", 0, 1), w.commit("a", 1, 3)],
    "a drop and a client": lambda w: [w.drop("d", 0), w.commit("a", 1, 2)],
    "a drop and a commit with an effect": lambda w: [w.drop("d", 0), w.commit_with_effect("a", 1, 2)],
    "a drop and a listing": lambda w: [w.drop("d", 0), w.list_all("r", 1)],
    "a deregistration and a client": lambda w: [w.deregister("d", 0), w.commit("a", 1, 2)],
    "two batches": lambda w: [_with_other(w).commit_batch("a", 0, 2), w.commit_batch("b", 1, 2)],
    "a batch that is killed and a client": lambda w: [
        _with_other(w).commit_batch("a", 0, 2, DIE),
        w.commit("b", 1, 2, on=1),
    ],
    "a batch and a writer by location": lambda w: [
        _with_other(w).commit_batch("a", 0, 2),
        w.write_by_location("w", 1, 2, on=1),
    ],
    "an interrupted commit, a reader and a writer by location": lambda w: [
        *_after(interrupted, w),
        w.read("r", 0, None),
        w.write_by_location("w", 1, 2),
    ],
    "an interrupted commit, a client and a writer by location": lambda w: [
        *_after(interrupted, w),
        w.commit("a", 0, 2),
        w.write_by_location("w", 1, 2),
    ],
    "an interrupted commit and two listings": lambda w: [
        *_after(interrupted, w),
        w.list_all("r", 0),
        w.list_all("s", 1),
    ],
    "an interrupted commit with an effect, a listing and a reader": lambda w: [
        *_after(interrupted_with_effect, w),
        w.list_all("r", 0),
        w.read("s", 1, None),
    ],
    "an interrupted commit with an effect, a reader and a client": lambda w: [
        *_after(interrupted_with_effect, w),
        w.read("r", 0, None),
        w.commit("a", 1, 2),
    ],
}

THREE: dict[str, Scenario] = {
    "two clients and a listing": lambda w: [
        w.commit("a", 0, 2),
        w.list_all("r", 1),
        w.commit("b", 2, 2),
    ],
    "two clients and a writer by location": lambda w: [
        w.commit("a", 0, 2),
        w.write_by_location("w", 1, 2),
        w.commit("b", 2, 2),
    ],
    "a client, a reader and a writer by location": lambda w: [
        w.commit("a", 0, 2),
        w.write_by_location("w", 1, 2),
        w.read("r", 2, 2, None),
    ],
    "a client that is killed, a listing and a writer by location": lambda w: [
        w.commit("a", 0, 2, DIE),
        w.write_by_location("w", 1, 2),
        w.list_all("r", 2),
    ],
    "a commit with an effect that is killed, a reader and a writer by location": lambda w: [
        w.commit_with_effect("a", 0, 2, DIE),
        w.write_by_location("w", 1, 2),
        w.read("r", 2, None),
    ],
    "a client whose answers are lost and another": lambda w: [
        w.commit_twice("a", 0, 2, 2, LOSE),
        w.commit("b", 1, 2),
    ],
    "a deletion, clean-up and a listing": lambda w: [
        with_second(w).delete_version("d", 0, 1),
        w.clean_by_location("c", 1, 1),
        w.list_all("r", 2),
    ],
    "a batch, a client and a writer by location": lambda w: [
        _with_other(w).commit_batch("a", 0, 2),
        w.commit("b", 1, 2),
        w.write_by_location("w", 2, 2, on=1),
    ],
}


def interrupted_with_effect(world: World) -> VersionEntry:
    return interrupted(world, has_effect=True)


def _after(prepare: Callable[[World], object], world: World) -> Sequence[Actor]:
    prepare(world)
    return []


def with_second(world: World) -> World:
    """The table has two versions to begin with."""
    tracked = world.tables[0]
    entry = world.stage("second", 2)
    world.first.versions.commit(tracked.table, entry)
    tracked.start = ("first", "second")
    return world


def _with_other(world: World) -> World:
    world.add_table()
    return world


SCENARIOS: dict[str, Scenario] = {**TWO, **THREE}


@pytest.mark.parametrize("name", SCENARIOS)
def test_one_order_explains_what_everybody_saw(deployment: Deployment, name: str) -> None:
    print(f"{name}: {walk(deployment, SCENARIOS[name], deployment.first_orders)}")


@pytest.mark.parametrize("name", TWO)
def test_one_order_explains_what_everybody_saw_on_an_object_store(
    s3_deployment: Deployment, name: str
) -> None:
    print(f"{name}: {walk(s3_deployment, TWO[name], s3_deployment.first_orders)}")


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_one_order_explains_what_everybody_saw_in_all_orders(deployment: Deployment, name: str) -> None:
    print(f"{name}: {walk(deployment, SCENARIOS[name])}")


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", TWO)
def test_one_order_explains_what_everybody_saw_on_an_object_store_in_all_orders(
    s3_deployment: Deployment, name: str
) -> None:
    print(f"{name}: {walk(s3_deployment, TWO[name])}")
