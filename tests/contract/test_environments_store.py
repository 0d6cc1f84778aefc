"""EnvironmentRepository, on every store."""

from __future__ import annotations

from tests.contract.threads import together
from tidemill.catalog.model.functions import Environment
from tidemill.jobs.ports import JobStore

VISION = Environment(("torch==2.4", "pillow"), {"Z": "1", "A": "\u00e4 = 'x'"})


def put(store: JobStore, name: str, environment: Environment) -> None:
    with store.transaction() as tx:
        tx.environments.put(name, environment)


def found(store: JobStore, name: str) -> Environment | None:
    with store.transaction() as tx:
        return tx.environments.find(name)


def test_an_environment_comes_back_as_it_was_put(store: JobStore) -> None:
    put(store, "vision", VISION)
    put(store, "empty", Environment())
    assert found(store, "vision") == VISION
    assert found(store, "empty") == Environment()


def test_a_missing_environment_is_none(store: JobStore) -> None:
    put(store, "vision", VISION)
    assert found(store, "Vision") is None


def test_a_name_gets_another_environment(store: JobStore) -> None:
    put(store, "vision", VISION)
    put(store, "other", VISION)
    put(store, "vision", Environment(("numpy",)))
    assert found(store, "vision") == Environment(("numpy",))
    assert found(store, "other") == VISION


def test_environments_are_listed_by_name(store: JobStore) -> None:
    for name in ("b", "a", "B"):
        put(store, name, Environment((name,)))
    with store.transaction() as tx:
        listed = list(tx.environments.list_all())
    assert listed == [(name, Environment((name,))) for name in ("B", "a", "b")]


def test_removing_tells_whether_there_was_one(store: JobStore) -> None:
    put(store, "vision", VISION)
    with store.transaction() as tx:
        assert tx.environments.remove("vision")
        assert not tx.environments.remove("vision")
    assert found(store, "vision") is None


def test_environments_put_under_one_name_together_leave_one_of_them(store: JobStore) -> None:
    offered = [Environment((f"numpy=={number}",)) for number in range(8)]
    outcomes = together(*(lambda one=one: put(store, "vision", one) for one in offered))
    assert [outcome for outcome in outcomes if outcome is not None] == []
    assert found(store, "vision") in offered
