"""IcebergRepository and PurgeQueue, on every store."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from uuid import uuid4

import pytest

from tests.contract.samples import ALL, ROOT, a_namespace, a_table, an_entry, ident, path
from tests.contract.threads import together
from tidemill.catalog.errors import NamespaceNotFound
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Page
from tidemill.iceberg.errors import NameTaken
from tidemill.iceberg.model.entries import Entry, EntryKind, Holder
from tidemill.iceberg.ports import IcebergStore, IcebergTransaction
from tidemill.store.engine import SqlStore

KINDS = [EntryKind.TABLE, EntryKind.VIEW]
MEGABYTE = 1 << 20
# Long enough for a statement that does not wait to have been done.
MOMENT = 0.1


@pytest.fixture
def catalog(sql_store: SqlStore) -> IcebergStore:
    """With the namespaces `shop` and `shop.eu`."""
    with sql_store.transaction() as tx:
        tx.namespaces.add(a_namespace("shop"))
        tx.namespaces.add(a_namespace("shop", "eu"))
    return sql_store


def stored(catalog: IcebergStore, *levels: str, kind: EntryKind = EntryKind.TABLE) -> Entry:
    entry = an_entry(*levels, kind=kind)
    with catalog.transaction() as tx:
        tx.iceberg.add(entry)
    return entry


def next_state(entry: Entry, text: str = "next") -> Entry:
    return replace(entry, metadata_location=f"{entry.metadata_location}.{text}", metadata=text.encode())


def swap(catalog: IcebergStore, before: Entry, after: Entry) -> bool | None:
    with catalog.transaction() as tx:
        return tx.iceberg.swap(before, after)


def in_transaction(catalog: IcebergStore, work: Callable[[IcebergTransaction], object]) -> object:
    with catalog.transaction() as tx:
        return work(tx)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("levels", [("orders",), ("shop", "orders"), ("shop", "eu", "Größe '\"")])
def test_an_entry_comes_back_as_it_was_added(
    catalog: IcebergStore, kind: EntryKind, levels: tuple[str, ...]
) -> None:
    entry = an_entry(*levels, kind=kind, metadata=b"\x00\xff" * MEGABYTE)
    with catalog.transaction() as tx:
        tx.iceberg.add(entry)
    with catalog.reading() as tx:
        assert tx.iceberg.find(entry.ident, kind) == entry
        assert tx.iceberg.exists(entry.ident, kind)


def test_an_entry_is_found_as_what_it_is_and_under_its_own_name(catalog: IcebergStore) -> None:
    stored(catalog, "shop", "orders")
    with catalog.reading() as tx:
        for levels in (("shop", "Orders"), ("orders",), ("shop", "eu", "orders"), ("nowhere", "orders")):
            assert tx.iceberg.find(ident(*levels), EntryKind.TABLE) is None
            assert not tx.iceberg.exists(ident(*levels), EntryKind.TABLE)
        assert tx.iceberg.find(ident("shop", "orders"), EntryKind.VIEW) is None
        assert not tx.iceberg.exists(ident("shop", "orders"), EntryKind.VIEW)


def test_adding_to_a_missing_namespace_is_refused(catalog: IcebergStore) -> None:
    with catalog.transaction() as tx, pytest.raises(NamespaceNotFound):
        tx.iceberg.add(an_entry("nowhere", "orders"))


@pytest.mark.parametrize("wanted", KINDS)
@pytest.mark.parametrize("there", KINDS)
def test_a_name_that_an_entry_has_is_refused_and_the_transaction_goes_on(
    catalog: IcebergStore, there: EntryKind, wanted: EntryKind
) -> None:
    stored(catalog, "shop", "orders", kind=there)
    other = an_entry("shop", "other")
    with catalog.transaction() as tx:
        with pytest.raises(NameTaken) as refused:
            tx.iceberg.add(an_entry("shop", "orders", kind=wanted))
        tx.iceberg.add(other)
    assert refused.value.holder is Holder(there.value)
    with catalog.reading() as tx:
        assert tx.iceberg.find(other.ident, EntryKind.TABLE) == other


def test_entries_are_listed_by_kind_in_byte_order_and_in_pages(catalog: IcebergStore) -> None:
    for name in "bAéa":
        stored(catalog, "shop", name)
    stored(catalog, "shop", "view", kind=EntryKind.VIEW)
    stored(catalog, "shop", "eu", "deep")
    with catalog.transaction() as tx:
        tx.tables.add(a_table("shop", "B"))
    with catalog.reading() as tx:
        assert list(tx.iceberg.list_names(path("shop"), EntryKind.TABLE, ALL)) == ["A", "a", "b", "é"]
        assert list(tx.iceberg.list_names(path("shop"), EntryKind.TABLE, Page("A", 2))) == ["a", "b"]
        assert list(tx.iceberg.list_names(path("shop"), EntryKind.VIEW, ALL)) == ["view"]
        assert list(tx.iceberg.list_names(ROOT, EntryKind.TABLE, ALL)) == []


def test_listing_a_missing_namespace_is_refused(catalog: IcebergStore) -> None:
    with catalog.reading() as tx, pytest.raises(NamespaceNotFound):
        tx.iceberg.list_names(path("nowhere"), EntryKind.VIEW, ALL)


def test_a_state_is_swapped_for_the_next(catalog: IcebergStore) -> None:
    before, other = stored(catalog, "shop", "orders"), stored(catalog, "shop", "other")
    after = replace(next_state(before), location="/elsewhere")
    with catalog.transaction() as tx:
        assert tx.iceberg.swap(before, after)
    with catalog.reading() as tx:
        assert tx.iceberg.find(before.ident, before.kind) == after
        assert tx.iceberg.find(other.ident, other.kind) == other


def test_a_state_that_is_gone_is_not_swapped(catalog: IcebergStore) -> None:
    first = stored(catalog, "shop", "orders")
    second = next_state(first)
    with catalog.transaction() as tx:
        assert tx.iceberg.swap(first, second)
        assert not tx.iceberg.swap(first, replace(next_state(first, "late"), location="/elsewhere"))
        assert tx.iceberg.find(first.ident, first.kind) == second
        tx.iceberg.remove(first.entry_id)
        assert not tx.iceberg.swap(second, next_state(second))


def test_of_many_that_swap_one_state_exactly_one_wins(catalog: IcebergStore) -> None:
    before = stored(catalog, "shop", "orders")
    staying = [next_state(before, str(number)) for number in range(4)]
    moving = [replace(next_state(before, f"/{number}"), location=f"/w/{number}") for number in range(4)]
    states = [*staying, *moving]
    outcomes = together(*(partial(swap, catalog, before, after) for after in states))
    assert (outcomes.count(True), outcomes.count(False)) == (1, 7)
    with catalog.reading() as tx:
        assert tx.iceberg.find(before.ident, before.kind) == states[outcomes.index(True)]


def test_swapping_and_removing_at_once_ends_without_a_deadlock(catalog: IcebergStore) -> None:
    def remove(entry: Entry) -> None:
        with catalog.transaction() as tx:
            tx.iceberg.remove(entry.entry_id)

    for number in range(10):
        before = stored(catalog, "shop", f"t{number}")
        after = replace(next_state(before), location=f"/w/{number}")
        outcomes = together(partial(swap, catalog, before, after), partial(remove, before))
        assert outcomes[0] in (True, False)
        assert outcomes[1] is None
        with catalog.reading() as tx:
            assert tx.iceberg.find_holder(before.ident) is None


@pytest.mark.parametrize("target", [("orders",), ("shop", "new"), ("shop", "eu", "orders")])
def test_a_renamed_entry_keeps_everything_but_its_name(
    catalog: IcebergStore, target: tuple[str, ...]
) -> None:
    entry = stored(catalog, "shop", "orders", kind=EntryKind.VIEW)
    with catalog.transaction() as tx:
        assert tx.iceberg.rename(entry, ident(*target))
    with catalog.reading() as tx:
        assert tx.iceberg.find(ident(*target), entry.kind) == replace(entry, ident=ident(*target))
        assert tx.iceberg.find_holder(entry.ident) is None


def test_an_entry_is_not_renamed_into_a_missing_namespace(catalog: IcebergStore) -> None:
    entry = stored(catalog, "shop", "orders")
    with catalog.transaction() as tx, pytest.raises(NamespaceNotFound) as refused:
        tx.iceberg.rename(entry, ident("nowhere", "orders"))
    assert refused.value.path == path("nowhere")


def test_an_entry_that_is_gone_or_has_another_name_by_now_is_not_renamed(catalog: IcebergStore) -> None:
    entry = stored(catalog, "shop", "orders")
    with catalog.transaction() as tx:
        assert not tx.iceberg.rename(an_entry("shop", "orders"), ident("shop", "new"))
        assert tx.iceberg.rename(entry, ident("shop", "first"))
        assert not tx.iceberg.rename(entry, ident("shop", "second"))


def test_of_two_renames_of_one_entry_at_once_only_one_is_done(catalog: IcebergStore) -> None:
    entry = stored(catalog, "shop", "orders")

    def rename(target: TableIdent) -> object:
        return in_transaction(catalog, lambda tx: tx.iceberg.rename(entry, target))

    targets = [ident("shop", name) for name in "ab"]
    outcomes = together(*(partial(rename, target) for target in targets))
    assert sorted(map(bool, outcomes)) == [False, True]
    with catalog.reading() as tx:
        holders = [tx.iceberg.find_holder(target) for target in targets]
    assert [holder is not None for holder in holders] == outcomes


def test_a_removed_entry_is_gone_and_its_name_is_free(catalog: IcebergStore) -> None:
    entry = stored(catalog, "shop", "orders")
    again = an_entry("shop", "orders", kind=EntryKind.VIEW)
    with catalog.transaction() as tx:
        tx.iceberg.remove(entry.entry_id)
        tx.iceberg.remove(entry.entry_id)
        assert tx.iceberg.find(entry.ident, entry.kind) is None
        tx.iceberg.add(again)
        assert tx.iceberg.find(again.ident, again.kind) == again


def test_a_locked_entry_is_as_the_last_change_left_it(catalog: IcebergStore) -> None:
    first = stored(catalog, "shop", "orders")
    second = next_state(first)
    with ThreadPoolExecutor(1) as threads:
        with catalog.transaction() as tx:
            assert tx.iceberg.swap(first, second)
            locking = threads.submit(
                in_transaction, catalog, lambda tx: tx.iceberg.lock(first.ident, first.kind)
            )
            time.sleep(MOMENT)
            assert not locking.done()
        assert locking.result() == second


@pytest.mark.parametrize("change", ["swap", "rename", "remove"])
def test_a_locked_entry_is_changed_by_nobody_else(catalog: IcebergStore, change: str) -> None:
    entry = stored(catalog, "shop", "orders")
    changes: dict[str, Callable[[IcebergTransaction], object]] = {
        "swap": lambda tx: tx.iceberg.swap(entry, next_state(entry)),
        "rename": lambda tx: tx.iceberg.rename(entry, ident("shop", "new")),
        "remove": lambda tx: tx.iceberg.remove(entry.entry_id),
    }
    with ThreadPoolExecutor(1) as threads:
        with catalog.transaction() as tx:
            assert tx.iceberg.lock(entry.ident, entry.kind) == entry
            changing = threads.submit(in_transaction, catalog, changes[change])
            time.sleep(MOMENT)
            assert not changing.done()
        changing.result()


@pytest.mark.parametrize("levels", [("shop", "nothing"), ("nowhere", "orders"), ("shop", "view")])
def test_what_is_not_there_is_not_locked(catalog: IcebergStore, levels: tuple[str, ...]) -> None:
    stored(catalog, "shop", "view", kind=EntryKind.VIEW)
    with catalog.transaction() as tx:
        assert tx.iceberg.lock(ident(*levels), EntryKind.TABLE) is None


def test_tables_wait_for_their_purge_in_the_order_they_came(catalog: IcebergStore) -> None:
    entries = [an_entry("shop", name, metadata=name.encode() * MEGABYTE) for name in "bca"]
    for entry in entries:
        with catalog.transaction() as tx:
            tx.purges.add(entry)
        time.sleep(0.003)
    with catalog.transaction() as tx:
        assert list(tx.purges.list_waiting(2)) == entries[:2]
        tx.purges.remove(entries[0].entry_id)
        tx.purges.remove(uuid4())
        assert list(tx.purges.list_waiting(9)) == entries[1:]


def test_a_purge_waits_though_the_table_and_its_namespace_are_gone(catalog: IcebergStore) -> None:
    entry = stored(catalog, "shop", "eu", "orders")
    with catalog.transaction() as tx:
        tx.purges.add(entry)
        tx.iceberg.remove(entry.entry_id)
        tx.namespaces.remove(path("shop", "eu"))
    with catalog.reading() as tx:
        assert list(tx.purges.list_waiting(1)) == [entry]
