"""One space of names and places for Lance and Iceberg, on every store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from tests.contract.samples import ALL, ROOT, a_job, a_namespace, a_table, an_entry, ident, path
from tests.contract.threads import together
from tidemill.catalog.errors import NamespaceNotEmpty, TableAlreadyExists, TableNotFound
from tidemill.catalog.model.tables import Declared, TableKind
from tidemill.iceberg.errors import LANCE_NOUNS, NameTaken, RenameTargetTaken
from tidemill.iceberg.model.entries import Entry, EntryKind, Holder
from tidemill.iceberg.ports import IcebergStore, IcebergTransaction
from tidemill.jobs.model.jobs import JobState
from tidemill.store.engine import SqlStore

KINDS = [EntryKind.TABLE, EntryKind.VIEW]


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


def in_transaction(catalog: IcebergStore, work: Callable[[IcebergTransaction], object]) -> object:
    with catalog.transaction() as tx:
        return work(tx)


@pytest.mark.parametrize("wanted", KINDS)
@pytest.mark.parametrize("there", TableKind)
def test_a_name_that_lance_has_is_refused(catalog: IcebergStore, there: TableKind, wanted: EntryKind) -> None:
    with catalog.transaction() as tx:
        tx.tables.add(a_table("shop", "orders", kind=there))
        with pytest.raises(NameTaken) as refused:
            tx.iceberg.add(an_entry("shop", "orders", kind=wanted))
        assert tx.iceberg.find_holder(ident("shop", "orders")) is Holder(there.value)
    assert refused.value.holder is Holder(there.value)


@pytest.mark.parametrize("there", KINDS)
def test_a_name_that_an_entry_has_is_refused_for_a_lance_table(
    catalog: IcebergStore, there: EntryKind
) -> None:
    stored(catalog, "shop", "orders", kind=there)
    table = a_table("shop", "mine")
    with catalog.transaction() as tx:
        with pytest.raises(TableAlreadyExists):
            tx.tables.add(a_table("shop", "orders"))
        tx.tables.add(table)
        with pytest.raises(TableAlreadyExists):
            tx.tables.rename(table.table_id, ident("shop", "orders"))


def test_the_holder_of_a_name_is_known(catalog: IcebergStore) -> None:
    stored(catalog, "shop", "t")
    stored(catalog, "shop", "v", kind=EntryKind.VIEW)
    with catalog.reading() as tx:
        assert tx.iceberg.find_holder(ident("shop", "t")) is Holder.ICEBERG_TABLE
        assert tx.iceberg.find_holder(ident("shop", "v")) is Holder.ICEBERG_VIEW
        assert tx.iceberg.find_holder(ident("shop", "nothing")) is None


def test_lance_sees_no_entries(catalog: IcebergStore) -> None:
    entry = stored(catalog, "shop", "orders")
    stored(catalog, "shop", "view", kind=EntryKind.VIEW)
    table = a_table("shop", "lance")
    with catalog.transaction() as tx:
        tx.tables.add(table)
        assert tx.tables.find(entry.ident) is None
        assert tx.tables.find_by_id(entry.entry_id) is None
        with pytest.raises(TableNotFound):
            tx.tables.get(entry.ident)
        assert list(tx.tables.list_in(path("shop"), ALL)) == [table]
        assert list(tx.tables.list_names(path("shop"), ALL, Declared.INCLUDE)) == ["lance"]
        assert list(tx.tables.list_under(ROOT)) == [table]
        assert list(tx.tables.list_in(path("shop"), ALL, Declared.EXCLUDE)) == []


@pytest.mark.parametrize("holder", Holder)
def test_an_entry_is_not_renamed_to_a_taken_name(catalog: IcebergStore, holder: Holder) -> None:
    entry, target = stored(catalog, "shop", "orders"), ident("shop", "taken")
    with catalog.transaction() as tx:
        if holder in LANCE_NOUNS:
            tx.tables.add(a_table(*target.levels, kind=TableKind(holder.value)))
        else:
            tx.iceberg.add(an_entry(*target.levels, kind=EntryKind(holder.value)))
    noun = "View" if holder is Holder.ICEBERG_VIEW else "Table"
    note = f" ({LANCE_NOUNS[holder]})" if holder in LANCE_NOUNS else ""
    with catalog.transaction() as tx:
        with pytest.raises(RenameTargetTaken) as refused:
            tx.iceberg.rename(entry, target)
        assert tx.iceberg.find(entry.ident, entry.kind) == entry
        assert tx.iceberg.find_holder(target) is holder
    assert str(refused.value) == f"Cannot rename {entry.ident} to {target}. {noun} already exists{note}"


def test_makers_of_one_name_of_every_kind_at_once_do_not_both_get_it(catalog: IcebergStore) -> None:
    def add(kind: EntryKind | None) -> object:
        if kind is None:
            return in_transaction(catalog, lambda tx: tx.tables.add(a_table("shop", "wanted")))
        return in_transaction(catalog, lambda tx: tx.iceberg.add(an_entry("shop", "wanted", kind=kind)))

    kinds = [None, *KINDS] * 3
    outcomes = together(*(partial(add, kind) for kind in kinds))
    assert outcomes.count(None) == 1
    winner = kinds[outcomes.index(None)]
    holder = Holder.LANCE_TABLE if winner is None else Holder(winner.value)
    assert {outcome.holder for outcome in outcomes if isinstance(outcome, NameTaken)} == {holder}
    assert sum(isinstance(outcome, NameTaken | TableAlreadyExists) for outcome in outcomes) == 8


def test_a_lance_table_is_not_removed_as_an_entry(catalog: IcebergStore) -> None:
    table = a_table("shop", "orders")
    with catalog.transaction() as tx:
        tx.tables.add(table)
        tx.iceberg.remove(table.table_id)
        assert tx.tables.get(table.ident) == table


def test_removing_an_entry_leaves_jobs_alone(sql_store: SqlStore, catalog: IcebergStore) -> None:
    entry = stored(catalog, "shop", "orders")
    job = a_job(table_id=entry.entry_id)
    with sql_store.transaction() as tx:
        tx.jobs.add(job)
        tx.iceberg.remove(entry.entry_id)
        assert tx.jobs.get(job.job_id).state is JobState.QUEUED


@pytest.mark.parametrize("kind", KINDS)
def test_a_namespace_with_an_entry_is_not_empty(catalog: IcebergStore, kind: EntryKind) -> None:
    entry = stored(catalog, "shop", "eu", "orders", kind=kind)
    with catalog.transaction() as tx:
        with pytest.raises(NamespaceNotEmpty):
            tx.namespaces.remove(path("shop", "eu"))
        assert tx.iceberg.find(entry.ident, kind) == entry


def test_what_is_foreign_to_lance_is_forgotten_in_a_namespace_and_below(catalog: IcebergStore) -> None:
    stored(catalog, "shop", "t")
    stored(catalog, "shop", "eu", "v", kind=EntryKind.VIEW)
    outside, lance = stored(catalog, "t"), a_table("shop", "lance")
    with catalog.transaction() as tx:
        tx.tables.add(lance)
        tx.tables.remove_iceberg_names(path("shop"))
        assert tx.iceberg.find_holder(ident("shop", "t")) is None
        assert tx.iceberg.find_holder(ident("shop", "eu", "v")) is None
        assert tx.iceberg.find(outside.ident, outside.kind) == outside
        assert tx.tables.get(lance.ident) == lance
        tx.namespaces.remove(path("shop", "eu"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_place_of_an_entry_is_taken_for_all_but_itself(catalog: IcebergStore, kind: EntryKind) -> None:
    entry = an_entry("shop", "orders", kind=kind, location="/w/a/b")
    with catalog.transaction() as tx:
        tx.iceberg.add(entry)
        for location in ("/w/a/b", "/w/a/b/c", "/w/a"):
            assert tx.tables.has_overlapping(location)
            assert tx.iceberg.is_location_taken(an_entry("shop", "other", location=location))
            assert not tx.iceberg.is_location_taken(replace(entry, location=location))
        assert not tx.tables.has_overlapping("/w/a/c")


@pytest.mark.parametrize(
    ("location", "is_taken"),
    [("/w/a/b", True), ("/w/a/b/c", True), ("/w/a", True), ("/w/a/c", False), ("/w/a/bc", False)],
)
def test_a_place_of_lance_is_taken(catalog: IcebergStore, location: str, is_taken: bool) -> None:
    with catalog.transaction() as tx:
        tx.tables.add(a_table("shop", "orders", location="/w/a/b"))
        assert tx.iceberg.is_location_taken(an_entry("shop", "other", location=location)) is is_taken


@pytest.mark.parametrize(
    ("location", "is_inside", "overlaps"),
    [
        ("/w/a/b", True, True),
        ("/w/a/b/c/d", True, True),
        ("/w/a", False, True),
        ("/w/a/bc", False, False),
        ("/w/entry/c", True, True),
        ("/w/own/c", False, False),
    ],
)
def test_whose_place_it_is_is_known_without_writing(
    catalog: IcebergStore, location: str, is_inside: bool, overlaps: bool
) -> None:
    own = an_entry("shop", "own", location="/w/own")
    with catalog.transaction() as tx:
        tx.iceberg.add(own)
        tx.iceberg.add(an_entry("shop", "entry", location="/w/entry"))
        tx.tables.add(a_table("shop", "orders", location="/w/a/b"))
    with catalog.reading() as tx:
        assert tx.iceberg.is_in_another(location, own.entry_id) is is_inside
        assert tx.iceberg.is_overlapping(replace(own, location=location)) is overlaps


def test_of_a_lance_table_and_an_entry_that_take_one_place_at_once_one_sees_the_other(
    catalog: IcebergStore,
) -> None:
    def take_for_lance(tx: IcebergTransaction) -> bool:
        if tx.tables.has_overlapping("/w/place"):
            return False
        tx.tables.add(a_table("lance", location="/w/place"))
        return True

    def take_for_iceberg(tx: IcebergTransaction) -> bool:
        entry = an_entry("iceberg", location="/w/place")
        if tx.iceberg.is_location_taken(entry):
            return False
        tx.iceberg.add(entry)
        return True

    outcomes = together(
        *(partial(in_transaction, catalog, take) for take in (take_for_lance, take_for_iceberg))
    )
    assert sorted(map(bool, outcomes)) == [False, True]
