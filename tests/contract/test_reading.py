"""What reading promises, on every store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from uuid import UUID

import pytest
from sqlalchemy.exc import DBAPIError

from tests.contract.samples import a_namespace, a_table, a_version, path, stored_table
from tidemill.catalog.errors import NamespaceNotFound, TableNotFound
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Declared, Page
from tidemill.errors import Unavailable
from tidemill.jobs.ports import JobStore
from tidemill.store.engine import SqlStore, open_store


def test_what_was_committed_is_seen(store: JobStore) -> None:
    shop = a_namespace("shop")
    with store.transaction() as tx:
        tx.namespaces.add(shop)
    with store.reading() as tx:
        assert tx.namespaces.get(shop.path) == shop


def test_what_another_process_committed_is_seen_at_once(sql_store: SqlStore, store_url: str) -> None:
    table = stored_table(sql_store, "shop", "orders")
    other = open_store(store_url)
    for number in (1, 2, 3):
        with other.transaction() as tx:
            tx.versions.add(a_version(table.table_id, number))
        with sql_store.reading() as tx:
            latest = tx.versions.find_latest(table.table_id, MAIN_BRANCH)
            assert latest is not None
            assert latest.version == number
    other.close()


def test_a_block_sees_what_is_committed_while_it_runs(sql_store: SqlStore, store_url: str) -> None:
    other = open_store(store_url)
    with sql_store.reading() as tx:
        assert tx.namespaces.find(path("shop")) is None
        with other.transaction() as writing:
            writing.namespaces.add(a_namespace("shop"))
        assert tx.namespaces.find(path("shop")) is not None
    other.close()


def test_nothing_can_be_written(store: JobStore) -> None:
    with pytest.raises((DBAPIError, Unavailable)), store.reading() as tx:
        tx.namespaces.add(a_namespace("shop"))
    with store.reading() as tx:
        assert tx.namespaces.find(path("shop")) is None
    with store.transaction() as tx:
        tx.namespaces.add(a_namespace("shop"))


def test_no_version_can_be_written(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with pytest.raises((DBAPIError, Unavailable)), store.reading() as tx:
        tx.versions.add(a_version(table.table_id, 1))
    with store.reading() as tx:
        assert tx.versions.find_latest(table.table_id, MAIN_BRANCH) is None


def test_a_reader_does_not_wait_for_a_writer(store: JobStore) -> None:
    is_writing, is_read = Event(), Event()

    def write() -> None:
        with store.transaction() as tx:
            tx.namespaces.add(a_namespace("shop"))
            is_writing.set()
            assert is_read.wait(20)

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        assert is_writing.wait(20)
        with store.reading() as tx:
            assert tx.namespaces.find(path("shop")) is None
        is_read.set()
        writer.result()
    with store.reading() as tx:
        assert tx.namespaces.find(path("shop")) is not None


def test_an_error_leaves_the_store_readable(store: JobStore) -> None:
    with store.transaction() as tx:
        tx.namespaces.add(a_namespace("shop"))
    for _ in range(3):
        with pytest.raises(TableNotFound), store.reading() as tx:
            tx.tables.get(TableIdent(path("shop"), "missing"))
        with pytest.raises(NamespaceNotFound), store.reading() as tx:
            tx.tables.get(TableIdent(path("nowhere"), "missing"))


def test_many_threads_read_beside_a_writer(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")

    def read(_: int) -> int:
        with store.reading() as tx:
            latest = tx.versions.find_latest(table.table_id, MAIN_BRANCH)
            return 0 if latest is None else latest.version

    with ThreadPoolExecutor(8) as pool:
        for number in range(1, 21):
            with store.transaction() as tx:
                tx.versions.add(a_version(table.table_id, number))
            assert set(pool.map(read, range(8))) == {number}


def test_names_are_listed_page_by_page(store: JobStore) -> None:
    tables = [stored_table(store, "shop", name) for name in ("a", "b", "c")]
    with store.transaction() as tx:
        tx.versions.add(a_version(tables[1].table_id, 1))
    with store.reading() as tx:
        shop = path("shop")
        assert tx.tables.list_names(shop, Page(), Declared.INCLUDE) == ["a", "b", "c"]
        assert tx.tables.list_names(shop, Page("a", 1), Declared.INCLUDE) == ["b"]
        assert tx.tables.list_names(shop, Page(), Declared.EXCLUDE) == ["b"]
        assert tx.tables.list_names(NamespacePath(), Page(), Declared.INCLUDE) == []


def test_names_in_a_missing_namespace_are_refused(store: JobStore) -> None:
    with pytest.raises(NamespaceNotFound), store.reading() as tx:
        tx.tables.list_names(path("nowhere"), Page(), Declared.INCLUDE)


def test_ids_come_back_as_ids(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.reading() as tx:
        found = tx.tables.get(table.ident)
        assert found == table
        assert isinstance(found.table_id, UUID)
        assert tx.tables.find(a_table("shop", "other").ident) is None
