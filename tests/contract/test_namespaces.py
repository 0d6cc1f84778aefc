"""NamespaceRepository, on every store."""

from __future__ import annotations

from functools import partial

import pytest

from tests.contract.samples import ALL, ROOT, a_namespace, a_table, path
from tests.contract.threads import together
from tidemill.catalog.errors import NamespaceAlreadyExists, NamespaceNotEmpty, NamespaceNotFound
from tidemill.catalog.model.identifiers import MAX_LEVELS
from tidemill.catalog.model.tables import Page
from tidemill.jobs.ports import JobStore


def add(store: JobStore, *paths: tuple[str, ...]) -> None:
    with store.transaction() as tx:
        for levels in paths:
            tx.namespaces.add(a_namespace(*levels))


def test_a_namespace_comes_back_as_it_was_added(store: JobStore) -> None:
    shop = a_namespace("shop", owner="ada", comment="Größe \u0000 '\"")
    with store.transaction() as tx:
        tx.namespaces.add(shop)
        assert tx.namespaces.get(shop.path) == shop


def test_adding_a_name_that_is_taken_is_refused(store: JobStore) -> None:
    add(store, ("shop",))
    with store.transaction() as tx, pytest.raises(NamespaceAlreadyExists):
        tx.namespaces.add(a_namespace("shop"))


def test_adding_the_root_is_refused(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(NamespaceAlreadyExists):
        tx.namespaces.add(a_namespace())


def test_adding_below_a_missing_parent_is_refused_naming_the_parent(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(NamespaceNotFound) as refused:
        tx.namespaces.add(a_namespace("shop", "eu"))
    assert refused.value.path == path("shop")


def test_the_same_name_may_stand_at_different_places(store: JobStore) -> None:
    add(store, ("a",), ("a", "a"), ("b",), ("b", "a"))
    with store.transaction() as tx:
        assert tx.namespaces.get(path("a", "a")) != tx.namespaces.get(path("b", "a"))


def test_names_differ_by_case(store: JobStore) -> None:
    add(store, ("shop",), ("Shop",))
    with store.transaction() as tx:
        assert tx.namespaces.find(path("SHOP")) is None
        assert tx.namespaces.get(path("Shop")).path == path("Shop")


def test_namespaces_nest_as_deep_as_paths_may_be(store: JobStore) -> None:
    levels = tuple(f"level{number}" for number in range(MAX_LEVELS))
    add(store, *(levels[:depth] for depth in range(1, MAX_LEVELS + 1)))
    with store.transaction() as tx:
        assert tx.namespaces.get(path(*levels)).path == path(*levels)


def test_getting_a_missing_namespace_is_refused(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(NamespaceNotFound):
        tx.namespaces.get(path("shop"))


def test_finding_a_missing_namespace_gives_none(store: JobStore) -> None:
    with store.transaction() as tx:
        assert tx.namespaces.find(path("shop")) is None


def test_the_root_is_never_returned(store: JobStore) -> None:
    with store.transaction() as tx:
        assert tx.namespaces.find(ROOT) is None
        assert list(tx.namespaces.list_children(ROOT, ALL)) == []


def test_children_are_listed_directly_below_and_in_byte_order(store: JobStore) -> None:
    add(store, ("b",), ("a",), ("é",), ("B",), ("a", "inner"), ("a_",), ("a-",))
    with store.transaction() as tx:
        names = [child.path.name for child in tx.namespaces.list_children(ROOT, ALL)]
        assert names == ["B", "a", "a-", "a_", "b", "é"]
        assert [child.path for child in tx.namespaces.list_children(path("a"), ALL)] == [path("a", "inner")]


def test_children_are_listed_in_pages_that_neither_repeat_nor_skip(store: JobStore) -> None:
    add(store, *((name,) for name in "edcbaEDCBA"))
    pages: list[str] = []
    after = None
    with store.transaction() as tx:
        while found := tx.namespaces.list_children(ROOT, Page(after, 3)):
            pages += [child.path.name for child in found]
            after = pages[-1]
    assert pages == list("ABCDEabcde")


def test_listing_the_children_of_a_missing_namespace_is_refused(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(NamespaceNotFound):
        tx.namespaces.list_children(path("shop"), ALL)


def test_a_removed_namespace_is_gone_and_its_name_is_free(store: JobStore) -> None:
    add(store, ("shop",))
    with store.transaction() as tx:
        tx.namespaces.remove(path("shop"))
        assert tx.namespaces.find(path("shop")) is None
        tx.namespaces.add(a_namespace("shop"))


def test_removing_a_namespace_with_a_table_is_refused(store: JobStore) -> None:
    add(store, ("shop",))
    with store.transaction() as tx:
        tx.tables.add(a_table("shop", "orders"))
        with pytest.raises(NamespaceNotEmpty):
            tx.namespaces.remove(path("shop"))


def test_removing_a_namespace_with_a_child_is_refused(store: JobStore) -> None:
    add(store, ("shop",), ("shop", "eu"))
    with store.transaction() as tx, pytest.raises(NamespaceNotEmpty):
        tx.namespaces.remove(path("shop"))


@pytest.mark.parametrize("levels", [("shop",), ()])
def test_removing_what_is_not_a_row_is_refused(store: JobStore, levels: tuple[str, ...]) -> None:
    with store.transaction() as tx, pytest.raises(NamespaceNotFound):
        tx.namespaces.remove(path(*levels))


def test_properties_are_replaced_as_a_whole(store: JobStore) -> None:
    with store.transaction() as tx:
        tx.namespaces.add(a_namespace("shop", owner="ada", kept="no"))
        tx.namespaces.add(a_namespace("other", owner="ada"))
        tx.namespaces.set_properties(path("shop"), {"owner": "bob"})
        assert tx.namespaces.get(path("shop")).properties == {"owner": "bob"}
        assert tx.namespaces.get(path("other")).properties == {"owner": "ada"}


def test_a_locked_namespace_is_as_the_last_change_left_it(store: JobStore) -> None:
    """Changes that build on what they read lose nothing when they lock first."""
    add(store, ("shop",), ("shop", "eu"))
    deep = path("shop", "eu")

    def put(key: str) -> None:
        with store.transaction() as tx:
            before = tx.namespaces.lock(deep).properties
            tx.namespaces.set_properties(deep, {**before, key: "1"})

    keys = [f"key{number}" for number in range(8)]
    assert together(*(partial(put, key) for key in keys)) == [None] * 8
    with store.transaction() as tx:
        assert tx.namespaces.get(deep).properties == dict.fromkeys(keys, "1")


@pytest.mark.parametrize("levels", [("shop",), ()])
def test_what_is_not_a_row_is_neither_locked_nor_changed(store: JobStore, levels: tuple[str, ...]) -> None:
    with store.transaction() as tx:
        with pytest.raises(NamespaceNotFound):
            tx.namespaces.lock(path(*levels))
        with pytest.raises(NamespaceNotFound):
            tx.namespaces.set_properties(path(*levels), {})
