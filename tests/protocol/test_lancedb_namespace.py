"""lancedb over a REST namespace: tables opened from storage, commits through the catalog."""

from __future__ import annotations

import lancedb
import pytest
from lance_namespace.errors import TableNotFoundError
from lancedb.namespace import LanceNamespaceDBConnection

from tests.conftest import RunningServer
from tests.protocol.wire import some_rows


@pytest.fixture
def database(server: RunningServer) -> LanceNamespaceDBConnection:
    return lancedb.connect_namespace("rest", {"uri": server.url})


def test_namespaces_are_made_listed_and_dropped(database: LanceNamespaceDBConnection, namespace: str) -> None:
    inner = [namespace, "inner"]
    database.create_namespace(inner, properties={"owner": "me"})
    assert database.list_namespaces([namespace]).namespaces == ["inner"]
    assert database.describe_namespace(inner).properties == {"owner": "me"}
    database.drop_namespace(inner)
    assert database.list_namespaces([namespace]).namespaces == []


def test_a_missing_namespace_is_not_found(database: LanceNamespaceDBConnection, namespace: str) -> None:
    with pytest.raises(RuntimeError, match="Namespace not found"):
        database.describe_namespace([namespace, "nowhere"])


def test_a_table_is_created_and_opened(database: LanceNamespaceDBConnection, namespace: str) -> None:
    database.create_table("t", some_rows(), namespace_path=[namespace])
    assert database.open_table("t", namespace_path=[namespace]).to_arrow() == some_rows()


def test_creating_a_table_twice_is_refused(database: LanceNamespaceDBConnection, namespace: str) -> None:
    database.create_table("t", some_rows(), namespace_path=[namespace])
    with pytest.raises(ValueError, match="already exists"):
        database.create_table("t", some_rows(7), namespace_path=[namespace])
    assert database.open_table("t", namespace_path=[namespace]).to_arrow() == some_rows()


def test_a_table_is_replaced(database: LanceNamespaceDBConnection, namespace: str) -> None:
    database.create_table("t", some_rows(), namespace_path=[namespace])
    database.create_table("t", some_rows(7), namespace_path=[namespace], mode="overwrite")
    assert database.open_table("t", namespace_path=[namespace]).to_arrow() == some_rows(7)


def test_rows_are_added(database: LanceNamespaceDBConnection, namespace: str) -> None:
    table = database.create_table("t", some_rows(), namespace_path=[namespace])
    table.add(some_rows(4))
    assert database.open_table("t", namespace_path=[namespace]).count_rows() == 6


def test_rows_are_changed_and_deleted(database: LanceNamespaceDBConnection, namespace: str) -> None:
    table = database.create_table("t", some_rows(), namespace_path=[namespace])
    table.update(where="id = 1", values={"text": "new"})
    table.delete("id = 2")
    found = database.open_table("t", namespace_path=[namespace]).to_arrow()
    assert sorted(found["text"].to_pylist()) == ["new", "row 3"]


def test_the_nearest_vectors_are_found(database: LanceNamespaceDBConnection, namespace: str) -> None:
    table = database.create_table("t", some_rows(count=5), namespace_path=[namespace])
    found = table.search([3.1, 0.0]).limit(2).to_arrow()
    assert found["id"].to_pylist() == [3, 4]


def test_rows_are_found_by_a_condition(database: LanceNamespaceDBConnection, namespace: str) -> None:
    table = database.create_table("t", some_rows(count=5), namespace_path=[namespace])
    assert table.search().where("id > 3").select(["id"]).to_list() == [{"id": 4}, {"id": 5}]


def test_queries_and_creation_can_be_left_to_the_server(server: RunningServer, namespace: str) -> None:
    database = lancedb.connect_namespace(
        "rest",
        {"uri": server.url},
        namespace_client_pushdown_operations=["QueryTable", "CreateTable"],
    )
    table = database.create_table("t", some_rows(count=5), namespace_path=[namespace])
    assert table.search().where("id > 3").to_arrow()["id"].to_pylist() == [4, 5]
    assert table.search([3.1, 0.0]).limit(1).to_arrow()["id"].to_pylist() == [3]


def test_tables_are_listed(database: LanceNamespaceDBConnection, namespace: str) -> None:
    for name in ("b", "a", "c"):
        database.create_table(name, some_rows(), namespace_path=[namespace])
    assert database.list_tables(namespace_path=[namespace]).tables == ["a", "b", "c"]


def test_a_dropped_table_is_gone(database: LanceNamespaceDBConnection, namespace: str) -> None:
    database.create_table("t", some_rows(), namespace_path=[namespace])
    database.drop_table("t", namespace_path=[namespace])
    with pytest.raises(TableNotFoundError):
        database.open_table("t", namespace_path=[namespace])
    database.create_table("t", some_rows(7), namespace_path=[namespace])
    assert database.open_table("t", namespace_path=[namespace]).to_arrow() == some_rows(7)
