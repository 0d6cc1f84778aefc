"""SecretRepository and StoredQueryRepository, on every store."""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.contract.samples import ROOT, a_namespace, a_table, ident, path
from tidemill.catalog.errors import (
    NamespaceNotEmpty,
    NamespaceNotFound,
    SecretAlreadyExists,
    SecretNotFound,
    StoredQueryNotFound,
)
from tidemill.catalog.model.tables import StoredQuery, TableKind
from tidemill.jobs.ports import JobStore


def test_a_secret_is_kept_until_it_is_removed(store: JobStore) -> None:
    with store.transaction() as tx:
        tx.secrets.add(ident("b"), b"\x00sealed")
        tx.secrets.add(ident("a"), b"sealed")
    with store.transaction() as tx:
        assert [secret.ident for secret in tx.secrets.list_in(ROOT)] == [ident("a"), ident("b")]
        tx.secrets.remove(ident("a"))
    with store.transaction() as tx:
        assert [secret.ident for secret in tx.secrets.list_in(ROOT)] == [ident("b")]
        for call in (tx.secrets.get, tx.secrets.remove):
            with pytest.raises(SecretNotFound):
                call(ident("a"))
        with pytest.raises(SecretNotFound):
            tx.secrets.replace(ident("a"), b"x")


def test_a_name_is_taken_once(store: JobStore) -> None:
    with store.transaction() as tx:
        tx.secrets.add(ident("a"), b"1")
        with pytest.raises(SecretAlreadyExists):
            tx.secrets.add(ident("a"), b"2")
        with pytest.raises(NamespaceNotFound):
            tx.secrets.add(ident("nowhere", "a"), b"2")


def test_replacing_a_secret_moves_its_time_only(store: JobStore) -> None:
    with store.transaction() as tx:
        tx.secrets.add(ident("a"), b"1")
        before = tx.secrets.get(ident("a"))
    time.sleep(0.005)
    with store.transaction() as tx:
        tx.secrets.replace(ident("a"), b"2")
        after = tx.secrets.get(ident("a"))
    assert after.created_at == before.created_at
    assert after.updated_at > before.updated_at


def test_a_namespace_with_secrets_is_not_empty(store: JobStore) -> None:
    with store.transaction() as tx:
        tx.namespaces.add(a_namespace("shop"))
        tx.secrets.add(ident("shop", "a"), b"1")
    with store.transaction() as tx, pytest.raises(NamespaceNotEmpty):
        tx.namespaces.remove(path("shop"))
    with store.transaction() as tx:
        tx.secrets.remove_in(path("shop"))
        tx.namespaces.remove(path("shop"))


def test_a_stored_query_goes_with_its_name(store: JobStore) -> None:
    table = replace(a_table("v"), kind=TableKind.QUERY)
    output = pa.schema([pa.field("n", pa.list_(pa.float32(), 3), nullable=False)])
    stored = StoredQuery(table, "SELECT …", ident("docs"), {"n": "`x`"}, "x > 1", 5, output)
    with store.transaction() as tx:
        tx.tables.add(table)
        tx.stored_queries.add(stored)
    with store.transaction() as tx:
        assert tx.stored_queries.get(tx.tables.get(ident("v"))) == stored
        tx.tables.remove(table.table_id)
        with pytest.raises(StoredQueryNotFound):
            tx.stored_queries.get(table)
