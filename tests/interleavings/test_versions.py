"""Commits of table versions, raced in every order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.interleavings.scheduler import Action, Actor
from tests.interleavings.world import Deployment, Scenario, World, walk


def two_clients(world: World) -> Sequence[Actor]:
    return world.commit("a", 0, 2), world.commit("b", 1, 2)


def a_client_and_a_writer_by_location(world: World) -> Sequence[Actor]:
    return world.commit("a", 0, 2), world.write_by_location("w", 1, 2)


def a_client_and_a_reader(world: World) -> Sequence[Actor]:
    return world.commit("a", 0, 2), world.read("r", 1, 2, None)


def a_client_and_a_listing(world: World) -> Sequence[Actor]:
    return world.commit("a", 0, 2), world.list_all("r", 1)


def a_client_that_is_killed_and_another(world: World) -> Sequence[Actor]:
    return world.commit("a", 0, 2, Action.DIE), world.commit("b", 1, 2)


def a_client_that_is_killed_and_a_writer_by_location(world: World) -> Sequence[Actor]:
    return world.commit("a", 0, 2, Action.DIE), world.write_by_location("w", 1, 2)


def a_client_whose_answers_are_lost_and_another(world: World) -> Sequence[Actor]:
    return world.commit("a", 0, 2, Action.LOSE_ANSWER), world.commit("b", 1, 2)


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__.replace("_", " "): scenario
    for scenario in (
        two_clients,
        a_client_and_a_writer_by_location,
        a_client_and_a_reader,
        a_client_and_a_listing,
        a_client_that_is_killed_and_another,
        a_client_that_is_killed_and_a_writer_by_location,
        a_client_whose_answers_are_lost_and_another,
    )
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_one_order_explains_what_everybody_saw(deployment: Deployment, name: str) -> None:
    seen = walk(deployment, SCENARIOS[name])
    print(f"{name}: {seen}")


def two_clients_and_a_listing(world: World) -> Sequence[Actor]:
    return world.commit("a", 0, 2), world.list_all("r", 1), world.commit("b", 2, 2)


def a_client_a_listing_and_a_reader(world: World) -> Sequence[Actor]:
    return world.commit("a", 0, 2), world.list_all("r", 1), world.read("s", 2, 2)
