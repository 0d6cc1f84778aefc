"""lancedb over a REST namespace: tables opened from storage, commits through the catalog."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import lancedb
import pyarrow as pa
import pytest
from lance_namespace.errors import TableNotFoundError
from lancedb import query
from lancedb.index import FTS, BTree, IvfFlat
from lancedb.namespace import LanceNamespaceDBConnection
from lancedb.table import LanceTable

from tests.conftest import RunningServer
from tests.protocol.wire import TableOnWire, some_rows

INDEXED_ROWS = 300
# What the client does itself unless it is told to leave it to the server.
LEFT_TO_THE_SERVER: dict[str, list[str]] = {
    "nothing": [],
    "queries and creation": ["QueryTable", "CreateTable"],
}

operation = pytest.mark.operation
# Its hints ask for every argument that has a default.
queries: Any = query


@pytest.fixture(params=LEFT_TO_THE_SERVER.values(), ids=list(LEFT_TO_THE_SERVER))
def database(request: pytest.FixtureRequest, server: RunningServer) -> LanceNamespaceDBConnection:
    return lancedb.connect_namespace(
        "rest", {"uri": server.url}, namespace_client_pushdown_operations=request.param
    )


@pytest.fixture
def table(database: LanceNamespaceDBConnection, namespace: str) -> LanceTable:
    made = database.create_table("t", some_rows(count=5), namespace_path=[namespace])
    assert isinstance(made, LanceTable)
    return made


@pytest.fixture
def on_wire(http: httpx.Client, namespace: str) -> TableOnWire:
    return TableOnWire(http, namespace, "t")


def found_ids(found: pa.Table) -> list[int]:
    numbers: list[int] = found["id"].to_pylist()
    return sorted(numbers)


def all_ids(table: Any) -> list[int]:
    """With a limit: without one, the client asks the server for ten rows, even in `to_arrow`."""
    return found_ids(table.search().limit(1000).to_arrow())


@operation("CreateNamespace", "ListNamespaces", "DescribeNamespace", "DropNamespace", client="lancedb")
def test_namespaces_are_made_listed_and_dropped(database: LanceNamespaceDBConnection, namespace: str) -> None:
    inner = [namespace, "inner"]
    database.create_namespace(inner, properties={"owner": "me"})
    assert database.list_namespaces([namespace]).namespaces == ["inner"]
    assert database.describe_namespace(inner).properties == {"owner": "me"}
    database.drop_namespace(inner)
    assert database.list_namespaces([namespace]).namespaces == []


@operation("DescribeNamespace", client="lancedb")
def test_a_missing_namespace_is_not_found(database: LanceNamespaceDBConnection, namespace: str) -> None:
    with pytest.raises(RuntimeError, match="Namespace not found"):
        database.describe_namespace([namespace, "nowhere"])


@operation("CreateTable", "DeclareTable", "CreateTableVersion", "DescribeTable", client="lancedb")
def test_a_table_is_created_and_opened(database: LanceNamespaceDBConnection, namespace: str) -> None:
    database.create_table("t", some_rows(), namespace_path=[namespace])
    assert database.open_table("t", namespace_path=[namespace]).to_arrow() == some_rows()


@operation("CreateTable", "DeclareTable", "DescribeTable", client="lancedb")
def test_creating_a_table_twice_is_refused(database: LanceNamespaceDBConnection, namespace: str) -> None:
    database.create_table("t", some_rows(), namespace_path=[namespace])
    with pytest.raises(ValueError, match="already exists"):
        database.create_table("t", some_rows(7), namespace_path=[namespace])
    assert database.open_table("t", namespace_path=[namespace]).to_arrow() == some_rows()


@operation("CreateTable", "CreateTableVersion", client="lancedb")
def test_a_table_is_replaced(database: LanceNamespaceDBConnection, namespace: str) -> None:
    database.create_table("t", some_rows(), namespace_path=[namespace])
    database.create_table("t", some_rows(7), namespace_path=[namespace], mode="overwrite")
    assert database.open_table("t", namespace_path=[namespace]).to_arrow() == some_rows(7)


@operation("CreateTableVersion", client="lancedb")
def test_rows_are_added(database: LanceNamespaceDBConnection, namespace: str) -> None:
    table = database.create_table("t", some_rows(), namespace_path=[namespace])
    table.add(some_rows(4))
    assert database.open_table("t", namespace_path=[namespace]).count_rows() == 6


@operation("CreateTableVersion", client="lancedb")
def test_rows_are_changed_and_deleted(database: LanceNamespaceDBConnection, namespace: str) -> None:
    table = database.create_table("t", some_rows(), namespace_path=[namespace])
    table.update(where="id = 1", values={"text": "new"})
    table.delete("id = 2")
    found = database.open_table("t", namespace_path=[namespace]).to_arrow()
    assert sorted(found["text"].to_pylist()) == ["new", "row 3"]


@operation("QueryTable", client="lancedb")
def test_the_nearest_vectors_are_found(database: LanceNamespaceDBConnection, namespace: str) -> None:
    table = database.create_table("t", some_rows(count=5), namespace_path=[namespace])
    found = table.search([3.1, 0.0]).limit(2).to_arrow()
    assert found["id"].to_pylist() == [3, 4]


@operation("QueryTable", client="lancedb")
def test_rows_are_found_by_a_condition(database: LanceNamespaceDBConnection, namespace: str) -> None:
    table = database.create_table("t", some_rows(count=5), namespace_path=[namespace])
    assert table.search().where("id > 3").select(["id"]).to_list() == [{"id": 4}, {"id": 5}]


@operation("ListTables", client="lancedb")
def test_tables_are_listed(database: LanceNamespaceDBConnection, namespace: str) -> None:
    for name in ("b", "a", "c"):
        database.create_table(name, some_rows(), namespace_path=[namespace])
    assert database.list_tables(namespace_path=[namespace]).tables == ["a", "b", "c"]


@operation("DropTable", "DescribeTable", client="lancedb")
def test_a_dropped_table_is_gone(database: LanceNamespaceDBConnection, namespace: str) -> None:
    database.create_table("t", some_rows(), namespace_path=[namespace])
    database.drop_table("t", namespace_path=[namespace])
    with pytest.raises(TableNotFoundError):
        database.open_table("t", namespace_path=[namespace])
    database.create_table("t", some_rows(7), namespace_path=[namespace])
    assert database.open_table("t", namespace_path=[namespace]).to_arrow() == some_rows(7)


@operation("ListTables", client="lancedb")
def test_a_listing_goes_on_after_a_name(database: LanceNamespaceDBConnection, namespace: str) -> None:
    for name in ("a", "b", "c", "d"):
        database.create_table(name, some_rows(), namespace_path=[namespace])
    listed = database.list_tables(namespace_path=[namespace], page_token="b", limit=1)
    assert listed.tables == ["c"]


@operation("RenameTable", client="lancedb")
def test_a_table_is_renamed(database: LanceNamespaceDBConnection, namespace: str, table: LanceTable) -> None:
    database.rename_table("t", "u", cur_namespace_path=[namespace], new_namespace_path=[namespace])
    renamed = database.open_table("u", namespace_path=[namespace])
    renamed.add(some_rows(6))
    assert renamed.count_rows() == 8
    assert database.list_tables(namespace_path=[namespace]).tables == ["u"]


@operation("QueryTable", client="lancedb")
def test_a_search_takes_a_condition_columns_and_a_limit(table: LanceTable) -> None:
    found = table.search([3.1, 0.0]).where("id <> 3", prefilter=True).select(["id"]).limit(2).to_arrow()
    assert found_ids(found) == [2, 4]
    assert found.column_names[0] == "id"
    assert table.search().where("id > 1").limit(2).offset(1).to_arrow()["id"].to_pylist() == [3, 4]


@operation("QueryTable", client="lancedb")
@pytest.mark.parametrize("text", ["4", queries.MatchQuery("4", "text")], ids=["words", "query object"])
def test_words_are_found(table: LanceTable, text: Any) -> None:
    """Left to the server, the text comes as the debug form of the client's own query object."""
    table.create_index("text", config=FTS())
    found = table.search(text, query_type="fts").limit(5).to_arrow()
    assert found["id"].to_pylist() == [4]


@operation("CreateTableVersion", client="lancedb")
def test_rows_are_merged(table: LanceTable) -> None:
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(some_rows(5, 3))
    assert all_ids(table) == [1, 2, 3, 4, 5, 6, 7]


@operation("CreateTableVersion", client="lancedb")
def test_indexes_are_built_listed_and_dropped(database: LanceNamespaceDBConnection, namespace: str) -> None:
    table = database.create_table("t", some_rows(count=INDEXED_ROWS), namespace_path=[namespace])
    table.create_index("id", config=BTree())
    table.create_index("vector", config=IvfFlat(num_partitions=2))
    assert sorted(index.name for index in table.list_indices()) == ["id_idx", "vector_idx"]
    stats = table.index_stats("vector_idx")
    assert stats is not None
    assert stats.num_indexed_rows == INDEXED_ROWS
    search: Any = table.search([7.1, 0.0])
    assert found_ids(search.nprobes(2).limit(2).to_arrow()) == [7, 8]
    table.drop_index("id_idx")
    reopened = database.open_table("t", namespace_path=[namespace])
    assert [index.name for index in reopened.list_indices()] == ["vector_idx"]


@operation("CreateTableVersion", "ListTableVersions", client="lancedb")
def test_versions_tags_and_restore(table: LanceTable, on_wire: TableOnWire) -> None:
    table.tags.create("first", 1)
    table.add(some_rows(6))
    assert [version["version"] for version in table.list_versions()] == [1, 2]
    table.checkout("first")
    assert table.count_rows() == 5
    table.restore()
    assert (table.version, table.count_rows()) == (3, 5)
    assert on_wire.numbers() == [1, 2, 3]
    table.checkout(2)
    assert table.count_rows() == 8


@operation("CreateTableVersion", "ListTableVersions", client="lancedb")
def test_a_table_is_optimized(table: LanceTable, on_wire: TableOnWire) -> None:
    for first in (6, 9):
        table.add(some_rows(first))
    with pytest.warns(UserWarning, match="removes every version except the latest"):
        table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
    numbers = on_wire.numbers()
    assert numbers[-1] > 3
    assert 1 not in numbers
    table.add(some_rows(12))
    assert all_ids(table) == list(range(1, 15))
    assert on_wire.post("count_rows").json() == 14


@operation("CreateTableVersion", client="lancedb")
def test_columns_are_added_altered_and_dropped(table: LanceTable, on_wire: TableOnWire) -> None:
    table.add_columns({"twice": "id * 2"})
    renamed: Any = {"path": "twice", "rename": "double"}
    table.alter_columns(renamed)
    table.drop_columns(["vector"])
    assert table.schema.names == ["id", "text", "double"]
    assert on_wire.numbers() == [1, 2, 3, 4]


@operation("DropTable", client="lancedb")
def test_all_tables_of_a_namespace_are_dropped(database: LanceNamespaceDBConnection, namespace: str) -> None:
    for name in ("a", "b"):
        database.create_table(name, some_rows(), namespace_path=[namespace])
    database.drop_all_tables(namespace_path=[namespace])
    assert database.list_tables(namespace_path=[namespace]).tables == []


@operation("CreateTableVersion", client="lancedb")
def test_two_connections_write_in_turns(
    database: LanceNamespaceDBConnection, server: RunningServer, namespace: str, table: LanceTable
) -> None:
    other = lancedb.connect_namespace("rest", {"uri": server.url}).open_table("t", namespace_path=[namespace])
    for first in (6, 12):
        table.add(some_rows(first))
        other.add(some_rows(first + 3))
    assert all_ids(database.open_table("t", namespace_path=[namespace])) == list(range(1, 18))
