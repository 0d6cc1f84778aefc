"""VersionRepository, on every store."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.contract.samples import a_version, stored_table
from tidemill.catalog.errors import TableNotFound, TableVersionAlreadyExists
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.errors import InvalidInput
from tidemill.jobs.ports import JobStore


def test_a_version_comes_back_as_it_was_added(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    version = a_version(table.table_id, 3, e_tag='"abc"', metadata={"job": "j", "part": "0"})
    with store.transaction() as tx:
        tx.versions.add(version)
        assert tx.versions.find(table.table_id, MAIN_BRANCH, 3) == version


def test_the_same_version_twice_is_refused_naming_the_table(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        tx.versions.add(a_version(table.table_id, 3))
        with pytest.raises(TableVersionAlreadyExists) as refused:
            tx.versions.add(a_version(table.table_id, 3))
    assert (refused.value.table, refused.value.version) == (table.ident, 3)


def test_branches_and_tables_count_their_versions_apart(store: JobStore) -> None:
    first, second = stored_table(store, "shop", "a"), stored_table(store, "shop", "b")
    with store.transaction() as tx:
        tx.versions.add(a_version(first.table_id, 1))
        tx.versions.add(a_version(first.table_id, 1, branch="dev"))
        tx.versions.add(a_version(first.table_id, 1, branch="Dev"))
        tx.versions.add(a_version(second.table_id, 1))
        assert len(tx.versions.list_all(first.table_id, "dev")) == 1


def test_a_version_of_a_dropped_table_is_refused(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(TableNotFound):
        tx.versions.add(a_version(uuid4(), 1))


def test_a_version_no_database_can_hold_is_refused_and_not_found(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        tx.versions.add(a_version(table.table_id, 2**63 - 1))
        with pytest.raises(InvalidInput):
            tx.versions.add(a_version(table.table_id, 2**63))
        assert tx.versions.find(table.table_id, MAIN_BRANCH, 2**64) is None
        tx.versions.remove(table.table_id, MAIN_BRANCH, 2**64)


def test_finding_a_missing_version_gives_none(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        tx.versions.add(a_version(table.table_id, 1))
        assert tx.versions.find(table.table_id, MAIN_BRANCH, 2) is None
        assert tx.versions.find(table.table_id, "dev", 1) is None
        assert tx.versions.find(uuid4(), MAIN_BRANCH, 1) is None


def test_the_latest_version_is_the_highest_whatever_came_last(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        assert tx.versions.find_latest(table.table_id, MAIN_BRANCH) is None
        for number in (2, 10, 9):
            tx.versions.add(a_version(table.table_id, number))
        latest = tx.versions.find_latest(table.table_id, MAIN_BRANCH)
    assert latest is not None
    assert latest.version == 10


def test_all_versions_are_listed_ascending(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        for number in (2, 10, 9):
            tx.versions.add(a_version(table.table_id, number))
        listed = tx.versions.list_all(table.table_id, MAIN_BRANCH)
    assert [version.version for version in listed] == [2, 9, 10]


def test_a_removed_version_is_gone_and_others_stay(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        for number in (1, 2):
            tx.versions.add(a_version(table.table_id, number))
        tx.versions.remove(table.table_id, MAIN_BRANCH, 1)
        assert [v.version for v in tx.versions.list_all(table.table_id, MAIN_BRANCH)] == [2]


def test_removing_a_missing_version_is_fine(store: JobStore) -> None:
    with store.transaction() as tx:
        tx.versions.remove(uuid4(), MAIN_BRANCH, 1)


def test_a_text_no_database_can_hold_is_refused_or_comes_back_whole(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    try:
        with store.transaction() as tx:
            tx.versions.add(a_version(table.table_id, 1, manifest_path="a\x00b"))
    except InvalidInput:
        return
    with store.transaction() as tx:
        found = tx.versions.find(table.table_id, MAIN_BRANCH, 1)
    assert found is not None
    assert found.manifest_path == "a\x00b"
