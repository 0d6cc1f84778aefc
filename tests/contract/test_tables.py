"""TableRepository, on every store."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from uuid import uuid4

import pytest
from pyroaring import BitMap64

from tests.contract.samples import (
    ALL,
    NOTHING,
    ROOT,
    a_column,
    a_job,
    a_namespace,
    a_table,
    a_version,
    a_view,
    an_error,
    claimed,
    ident,
    lease_of,
    path,
    stored_table,
    submitted,
)
from tests.contract.threads import together
from tidemill.catalog.errors import NamespaceNotFound, TableAlreadyExists, TableNotFound
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Declared, Page, Table, TableKind
from tidemill.jobs.errors import LeaseLost
from tidemill.jobs.model.columns import subject_of
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.jobs import JobState
from tidemill.jobs.ports import JobStore


@pytest.mark.parametrize("levels", [("orders",), ("shop", "orders")])
def test_a_table_comes_back_as_it_was_added(store: JobStore, levels: tuple[str, ...]) -> None:
    table = a_table(*levels, kind=TableKind.VIEW, properties={"owner": "ada"})
    with store.transaction() as tx:
        tx.namespaces.add(a_namespace("shop"))
        tx.tables.add(table)
        assert tx.tables.get(table.ident) == table
        assert tx.tables.find(table.ident) == table
        assert tx.tables.find_by_id(table.table_id) == table


def test_a_deep_table_is_found_by_id_with_its_whole_path(store: JobStore) -> None:
    table = a_table("a", "b", "a", "t")
    with store.transaction() as tx:
        for depth in (1, 2, 3):
            tx.namespaces.add(a_namespace(*("a", "b", "a")[:depth]))
        tx.tables.add(table)
        assert tx.tables.find_by_id(table.table_id) == table


def test_a_taken_name_is_refused_also_for_a_view(store: JobStore) -> None:
    stored_table(store, "shop", "orders")
    with store.transaction() as tx, pytest.raises(TableAlreadyExists):
        tx.tables.add(a_table("shop", "orders", kind=TableKind.VIEW))


def test_a_table_may_have_the_name_of_a_namespace(store: JobStore) -> None:
    stored_table(store, "shop", "orders")
    stored_table(store, "shop")
    with store.transaction() as tx:
        assert tx.tables.get(ident("shop")).ident == ident("shop")


def test_adding_to_a_missing_namespace_is_refused(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(NamespaceNotFound):
        tx.tables.add(a_table("shop", "orders"))


def test_getting_from_a_missing_namespace_says_that_the_namespace_is_missing(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(NamespaceNotFound):
        tx.tables.get(ident("shop", "orders"))


@pytest.mark.parametrize("levels", [("shop", "orders"), ("orders",), ("shop", "ORDERS")])
def test_getting_a_missing_table_is_refused(store: JobStore, levels: tuple[str, ...]) -> None:
    stored_table(store, "shop", "Orders")
    with store.transaction() as tx, pytest.raises(TableNotFound):
        tx.tables.get(ident(*levels))


def test_finding_a_missing_table_gives_none(store: JobStore) -> None:
    with store.transaction() as tx:
        assert tx.tables.find(ident("shop", "orders")) is None
        assert tx.tables.find_by_id(uuid4()) is None


def test_tables_are_listed_directly_in_the_namespace_and_in_byte_order(store: JobStore) -> None:
    for levels in [("s", "b"), ("s", "B"), ("s", "a"), ("s", "é"), ("other", "x"), ("top",)]:
        stored_table(store, *levels)
    with store.transaction() as tx:
        tx.namespaces.add(a_namespace("s", "deep"))
        tx.tables.add(a_table("s", "deep", "c"))
        assert [table.ident.name for table in tx.tables.list_in(path("s"), ALL)] == ["B", "a", "b", "é"]
        assert [table.ident.name for table in tx.tables.list_in(ROOT, ALL)] == ["top"]


def test_tables_are_listed_in_pages_that_neither_repeat_nor_skip(store: JobStore) -> None:
    with store.transaction() as tx:
        for name in "dCbAe":
            tx.tables.add(a_table(name))
        first = [table.ident.name for table in tx.tables.list_in(ROOT, Page(None, 2))]
        second = [table.ident.name for table in tx.tables.list_in(ROOT, Page(first[-1], 2))]
        third = [table.ident.name for table in tx.tables.list_in(ROOT, Page(second[-1], 2))]
    assert first + second + third == list("ACbde")


def test_listing_a_missing_namespace_is_refused(store: JobStore) -> None:
    with store.transaction() as tx:
        with pytest.raises(NamespaceNotFound):
            tx.tables.list_in(path("shop"), ALL)
        with pytest.raises(NamespaceNotFound):
            tx.tables.list_under(path("shop"))


def test_all_tables_under_a_namespace_are_listed_by_their_levels(store: JobStore) -> None:
    places = [("b",), ("a", "z"), ("a", "b", "y"), ("a", "b", "x"), ("a", "c", "w"), ("A", "q")]
    with store.transaction() as tx:
        for namespace in [("a",), ("a", "b"), ("a", "c"), ("A",)]:
            tx.namespaces.add(a_namespace(*namespace))
        for levels in places:
            tx.tables.add(a_table(*levels))
        assert [table.ident.levels for table in tx.tables.list_under(ROOT)] == sorted(places)
        under = [table.ident.levels for table in tx.tables.list_under(path("a"))]
        assert under == [("a", "b", "x"), ("a", "b", "y"), ("a", "c", "w"), ("a", "z")]


def test_a_removed_table_is_gone_and_its_name_is_free(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        tx.tables.remove(table.table_id)
        assert tx.tables.find_by_id(table.table_id) is None
        tx.tables.add(a_table("shop", "orders"))


def test_removing_a_table_that_is_gone_already_is_fine(store: JobStore) -> None:
    with store.transaction() as tx:
        tx.tables.remove(uuid4())


def test_a_removed_table_takes_its_versions_and_derived_things_along(store: JobStore) -> None:
    table, source = stored_table(store, "shop", "view"), stored_table(store, "shop", "source")
    column, view = a_column(table.table_id, "caption"), a_view(table.table_id, source.table_id)
    on_branch = subject_of(column.column_id, "dev")
    with store.transaction() as tx:
        tx.versions.add(a_version(table.table_id, 1))
        tx.versions.add(a_version(table.table_id, 1, branch="dev"))
        tx.derived.add_column(column)
        tx.derived.add_view(view)
        for subject in (column.column_id, view.view_id, source.table_id, on_branch):
            tx.coverage.put(subject, Coverage("d", 1, BitMap64([1])))
            tx.errors.settle(subject, BitMap64(), [an_error(subject, 1)])
    with store.transaction() as tx:
        tx.tables.remove(table.table_id)
    with store.transaction() as tx:
        assert tx.versions.find_latest(table.table_id, MAIN_BRANCH) is None
        assert tx.versions.find_latest(table.table_id, "dev") is None
        assert tx.derived.find_column(table.table_id, "caption") is None
        assert tx.derived.find_view(view.view_id) is None
        for subject in (column.column_id, view.view_id, on_branch):
            assert tx.coverage.find(subject, "d") is None
            assert list(tx.errors.list_of(subject, None, 9)) == []
        assert tx.coverage.find(source.table_id, "d") is not None
        assert len(tx.errors.list_of(source.table_id, None, 9)) == 1


def test_a_view_outlives_its_source(store: JobStore) -> None:
    view, source = stored_table(store, "shop", "view"), stored_table(store, "shop", "source")
    definition = a_view(view.table_id, source.table_id)
    with store.transaction() as tx:
        tx.derived.add_view(definition)
        tx.tables.remove(source.table_id)
        assert tx.derived.find_view(view.table_id) == definition


def test_removing_a_table_cancels_its_active_jobs(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    running = submitted(store, table_id=table.table_id, table=table.ident)
    lease = lease_of(claimed(store))
    queued = submitted(store, table_id=table.table_id, table=table.ident)
    other = submitted(store)
    with store.transaction() as tx:
        tx.tables.remove(table.table_id)
    with store.transaction() as tx:
        assert tx.jobs.get(running.job_id).state is JobState.CANCELLED
        assert tx.jobs.get(queued.job_id).state is JobState.CANCELLED
        assert tx.jobs.get(queued.job_id).finished_at is not None
        assert tx.jobs.get(other.job_id).state is JobState.QUEUED
        with pytest.raises(LeaseLost):
            tx.leases.check(lease)


def test_finished_jobs_of_a_removed_table_stay_as_history(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    job = a_job(table_id=table.table_id, table=table.ident, state=JobState.DONE)
    with store.transaction() as tx:
        tx.jobs.add(job)
        tx.events.append(job.job_id, "done", {})
        tx.tables.remove(table.table_id)
    with store.transaction() as tx:
        assert tx.jobs.get(job.job_id).state is JobState.DONE
        assert tx.jobs.get(job.job_id).table == table.ident
        assert len(tx.events.list_after(job.job_id, 0)) == 1
        assert tx.leases.claim("worker", NOTHING) is None


def test_a_renamed_table_keeps_everything_but_its_name(store: JobStore) -> None:
    table, view = stored_table(store, "shop", "orders"), stored_table(store, "shop", "view")
    column, definition = a_column(table.table_id, "caption"), a_view(view.table_id, table.table_id)
    with store.transaction() as tx:
        tx.namespaces.add(a_namespace("archive"))
        tx.versions.add(a_version(table.table_id, 1))
        tx.derived.add_column(column)
        tx.derived.add_view(definition)
        tx.coverage.put(column.column_id, Coverage("d", 1, BitMap64([1])))
    with store.transaction() as tx:
        tx.tables.rename(table.table_id, ident("archive", "old"))
    with store.transaction() as tx:
        found = tx.tables.get(ident("archive", "old"))
        assert found == replace(table, ident=ident("archive", "old"))
        assert tx.tables.find_by_id(table.table_id) == found
        assert tx.tables.find(table.ident) is None
        assert tx.versions.find_latest(table.table_id, MAIN_BRANCH) is not None
        assert tx.derived.find_column(table.table_id, "caption") == column
        assert tx.derived.list_views_of(table.table_id) == [definition]
        assert tx.coverage.find(column.column_id, "d") is not None


def test_jobs_follow_their_table_to_its_new_name(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    running = submitted(store, table_id=table.table_id, table=table.ident)
    lease = lease_of(claimed(store))
    other = submitted(store)
    with store.transaction() as tx:
        tx.tables.rename(table.table_id, ident("orders"))
    with store.transaction() as tx:
        tx.leases.check(lease)
        assert tx.jobs.get(running.job_id).table == ident("orders")
        assert tx.jobs.get(running.job_id).state is JobState.RUNNING
        assert tx.jobs.get(other.job_id).table == other.table


def test_a_table_is_not_renamed_to_a_taken_name(store: JobStore) -> None:
    table, taken = stored_table(store, "shop", "orders"), stored_table(store, "shop", "taken")
    with store.transaction() as tx:
        with pytest.raises(TableAlreadyExists):
            tx.tables.rename(table.table_id, taken.ident)
        assert tx.tables.get(table.ident) == table
        assert tx.tables.get(taken.ident) == taken


def test_a_table_is_not_renamed_into_a_missing_namespace(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx, pytest.raises(NamespaceNotFound):
        tx.tables.rename(table.table_id, ident("nowhere", "orders"))


def test_a_table_that_is_gone_is_not_renamed(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(TableNotFound):
        tx.tables.rename(uuid4(), ident("orders"))


def test_two_tables_that_are_renamed_to_one_name_at_once_do_not_both_get_it(store: JobStore) -> None:
    tables = [stored_table(store, "shop", name) for name in "ab"]

    def rename(table: Table) -> TableIdent:
        with store.transaction() as tx:
            tx.tables.rename(table.table_id, ident("shop", "wanted"))
        return table.ident

    outcomes = together(*(partial(rename, table) for table in tables))
    assert sorted(isinstance(outcome, TableAlreadyExists) for outcome in outcomes) == [False, True]


def test_properties_are_replaced_as_a_whole(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        tx.tables.set_properties(table.table_id, {"owner": "ada", "kept": "no"})
        tx.tables.set_properties(table.table_id, {"owner": "bob"})
        assert tx.tables.get(table.ident).properties == {"owner": "bob"}


def test_tables_without_versions_can_be_left_out(store: JobStore) -> None:
    for name in "abc":
        stored_table(store, "shop", name)
    with store.transaction() as tx:
        tx.versions.add(a_version(tx.tables.get(ident("shop", "b")).table_id, 1))
        tx.versions.add(a_version(tx.tables.get(ident("shop", "c")).table_id, 1, branch="dev"))
        shop, filled = path("shop"), Declared.EXCLUDE
        assert [table.ident.name for table in tx.tables.list_in(shop, ALL, filled)] == ["b"]
        assert [table.ident.name for table in tx.tables.list_under(ROOT, filled)] == ["b"]


@pytest.mark.parametrize(
    ("location", "overlaps"),
    [
        ("/w/a", True),
        ("/w/a/b", True),
        ("/w/a/b/tree/dev", True),
        ("/w", True),
        ("", True),
        ("/w/a/c", False),
        ("/w/a/b0", False),
        ("/w/a/b.", False),
        ("/w/a/b_", False),
        ("/w/a/", False),
        ("/W/a/b", False),
        ("/w/_/b", False),
        ("/w/%", False),
        ("s3://w/a/b", False),
    ],
)
def test_a_place_that_a_table_has_is_known(store: JobStore, location: str, overlaps: bool) -> None:
    with store.transaction() as tx:
        tx.namespaces.add(a_namespace("shop"))
        tx.tables.add(a_table("shop", "orders", location="/w/a/b"))
        assert tx.tables.has_overlapping(location) is overlaps


@pytest.mark.parametrize("sibling", ["/w/a-b", "/w/a.b", "/w/a0", "/w/aé", "/w/A", "/w/ab/c"])
def test_a_place_with_a_longer_name_is_another_place(store: JobStore, sibling: str) -> None:
    with store.transaction() as tx:
        tx.tables.add(a_table("sibling", location=sibling))
        assert not tx.tables.has_overlapping("/w/a")
        tx.tables.add(a_table("inside", location="/w/a/é"))
        assert tx.tables.has_overlapping("/w/a")


def test_of_two_that_take_one_place_at_once_one_sees_the_other(store: JobStore) -> None:
    def take(name: str) -> bool:
        with store.transaction() as tx:
            if tx.tables.has_overlapping("/w/place"):
                return False
            tx.tables.add(a_table(name, location="/w/place"))
            return True

    outcomes = together(*(partial(take, name) for name in "abcd"))
    assert (outcomes.count(True), outcomes.count(False)) == (1, 3)
