"""What a transaction promises, on every store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.contract.samples import a_job, a_namespace, a_table, a_version, path, stored_table
from tidemill.catalog.errors import (
    NamespaceAlreadyExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    TableVersionAlreadyExists,
)
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.jobs.errors import JobNotFound
from tidemill.jobs.ports import JobStore
from tidemill.store.engine import SqlStore, open_store


class Boom(Exception):
    pass


def test_what_was_done_is_there_after_the_transaction(store: JobStore) -> None:
    shop = a_namespace("shop", owner="ada")
    with store.transaction() as tx:
        tx.namespaces.add(shop)
    with store.transaction() as tx:
        assert tx.namespaces.get(shop.path) == shop


def test_a_failed_transaction_leaves_no_trace(store: JobStore) -> None:
    table, job = a_table("shop", "orders"), a_job()

    def fail_at_the_end() -> None:
        with store.transaction() as tx:
            tx.namespaces.add(a_namespace("shop"))
            tx.tables.add(table)
            tx.versions.add(a_version(table.table_id, 1))
            tx.jobs.add(job)
            tx.events.append(job.job_id, "submitted", {})
            raise Boom

    with pytest.raises(Boom):
        fail_at_the_end()
    with store.transaction() as tx:
        assert tx.namespaces.find(path("shop")) is None
        assert tx.tables.find_by_id(table.table_id) is None
        assert tx.versions.find_latest(table.table_id, MAIN_BRANCH) is None
        assert list(tx.events.list_after(job.job_id, 0)) == []
        with pytest.raises(JobNotFound):
            tx.jobs.get(job.job_id)


def test_a_refusal_that_is_caught_leaves_the_transaction_usable(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        tx.versions.add(a_version(table.table_id, 1))
        with pytest.raises(TableVersionAlreadyExists):
            tx.versions.add(a_version(table.table_id, 1))
        with pytest.raises(NamespaceAlreadyExists):
            tx.namespaces.add(a_namespace("shop"))
        with pytest.raises(NamespaceNotEmpty):
            tx.namespaces.remove(path("shop"))
        tx.versions.add(a_version(table.table_id, 2))
    with store.transaction() as tx:
        assert [v.version for v in tx.versions.list_all(table.table_id, MAIN_BRANCH)] == [1, 2]


def test_a_refusal_that_leaves_the_block_takes_everything_along(store: JobStore) -> None:
    def add_both() -> None:
        with store.transaction() as tx:
            tx.namespaces.add(a_namespace("shop"))
            tx.tables.add(a_table("nowhere", "orders"))

    with pytest.raises(NamespaceNotFound):
        add_both()
    with store.transaction() as tx:
        assert tx.namespaces.find(path("shop")) is None


def test_a_transaction_sees_what_it_did(store: JobStore) -> None:
    with store.transaction() as tx:
        tx.namespaces.add(a_namespace("shop"))
        assert tx.namespaces.find(path("shop")) is not None


def test_the_clock_of_the_database_is_in_utc_and_goes_forward(store: JobStore) -> None:
    with store.transaction() as tx:
        first, second = tx.now(), tx.now()
    assert first.tzinfo is UTC
    assert first <= second
    assert abs(datetime.now(UTC) - first) < timedelta(minutes=1)


def test_a_second_store_on_the_same_database_sees_the_same(sql_store: SqlStore, store_url: str) -> None:
    shop = a_namespace("shop")
    with sql_store.transaction() as tx:
        tx.namespaces.add(shop)
    other = open_store(store_url)
    with other.transaction() as tx:
        assert tx.namespaces.get(shop.path) == shop
    other.close()


def test_a_store_that_answers_can_be_pinged(sql_store: SqlStore) -> None:
    sql_store.check_readable()
