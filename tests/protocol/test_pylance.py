"""pylance through its REST namespace: writes, time travel, tags, and what they leave behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import lance
import pyarrow as pa
import pytest
from lance.namespace import RestNamespace
from lance_namespace import (
    CreateNamespaceRequest,
    ListNamespacesRequest,
    ListTablesRequest,
    ListTableVersionsRequest,
    TableVersion,
)
from lance_namespace.errors import TableAlreadyExistsError, TableNotFoundError

from tests.conftest import RunningServer
from tests.protocol.wire import TableOnWire, final_name, some_rows

operation = pytest.mark.operation

Change = Callable[[lance.LanceDataset], Any]

CHANGES: dict[str, Change] = {
    "delete": lambda dataset: dataset.delete("id = 1"),
    "update": lambda dataset: dataset.update({"text": "'new'"}, where="id = 2"),
    "merge_insert": lambda dataset: (
        dataset.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(some_rows(3, 2))
    ),
    "add_columns": lambda dataset: dataset.add_columns({"twice": "id * 2"}),
    "drop_columns": lambda dataset: dataset.drop_columns(["text"]),
    "create_scalar_index": lambda dataset: dataset.create_scalar_index("id", "BTREE"),
    "restore": lambda dataset: dataset.checkout_version(1).restore(),
}


@pytest.fixture
def table_id(rest: RestNamespace, namespace: str) -> list[str]:
    """A table of three rows, made by pylance."""
    levels = [namespace, "t"]
    write(rest, levels, some_rows(), "create")
    return levels


def write(rest: RestNamespace, levels: list[str], rows: pa.Table, mode: str) -> lance.LanceDataset:
    return lance.write_dataset(rows, namespace_client=rest, table_id=levels, mode=mode)


def opened(rest: RestNamespace, levels: list[str], version: int | str | None = None) -> lance.LanceDataset:
    return lance.dataset(namespace_client=rest, table_id=levels, version=version)


def rows_of_the_catalog(rest: RestNamespace, levels: list[str]) -> list[TableVersion]:
    listed: list[TableVersion] = rest.list_table_versions(ListTableVersionsRequest(id=levels)).versions
    return listed


def numbers_in_storage(dataset: lance.LanceDataset) -> list[int]:
    return [version["version"] for version in dataset.versions()]


@operation("DeclareTable", "CreateTableVersion", client="pylance")
def test_a_table_is_created(rest: RestNamespace, table_id: list[str]) -> None:
    assert opened(rest, table_id).to_table() == some_rows()


@operation("DeclareTable", client="pylance")
def test_creating_it_again_is_refused(rest: RestNamespace, table_id: list[str]) -> None:
    with pytest.raises(TableAlreadyExistsError):
        write(rest, table_id, some_rows(9), "create")
    assert opened(rest, table_id).to_table() == some_rows()


@operation("DescribeTable", "ListTableVersions", "CreateTableVersion", client="pylance")
def test_rows_are_appended(rest: RestNamespace, table_id: list[str]) -> None:
    dataset = write(rest, table_id, some_rows(4), "append")
    assert (dataset.version, opened(rest, table_id).to_table()["id"].to_pylist()) == (2, [1, 2, 3, 4, 5, 6])


@operation("DescribeTable", "ListTableVersions", "CreateTableVersion", client="pylance")
def test_an_overwrite_may_change_the_schema(rest: RestNamespace, table_id: list[str]) -> None:
    write(rest, table_id, pa.table({"other": ["x"]}), "overwrite")
    assert opened(rest, table_id).to_table().to_pydict() == {"other": ["x"]}


@operation("DescribeTableVersion", client="pylance")
def test_older_versions_can_be_read(rest: RestNamespace, table_id: list[str]) -> None:
    write(rest, table_id, some_rows(4), "append")
    write(rest, table_id, some_rows(7), "overwrite")
    found = [opened(rest, table_id, version).to_table()["id"].to_pylist() for version in (1, 2, 3)]
    assert found == [[1, 2, 3], [1, 2, 3, 4, 5, 6], [7, 8, 9]]


def test_a_tag_names_a_version(rest: RestNamespace, table_id: list[str]) -> None:
    dataset = write(rest, table_id, some_rows(4), "append")
    dataset.tags.create("first", 1)
    assert opened(rest, table_id, "first").count_rows() == 3


@operation("DescribeTableVersion", client="pylance")
def test_a_version_that_does_not_exist_cannot_be_opened(rest: RestNamespace, table_id: list[str]) -> None:
    with pytest.raises((ValueError, OSError), match="99"):
        opened(rest, table_id, 99)


@operation("DescribeTable", client="pylance")
def test_a_table_that_does_not_exist_cannot_be_opened(rest: RestNamespace, namespace: str) -> None:
    with pytest.raises(TableNotFoundError):
        opened(rest, [namespace, "nowhere"])


@operation("DescribeTable", "ListTableVersions", "CreateTableVersion", client="pylance")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_through_a_handle_are_commits_of_the_catalog(
    rest: RestNamespace, table_id: list[str], change: Change
) -> None:
    write(rest, table_id, some_rows(4), "append")
    dataset = opened(rest, table_id)
    change(dataset)
    catalog = [version.version for version in rows_of_the_catalog(rest, table_id)]
    assert catalog == numbers_in_storage(opened(rest, table_id)) == [1, 2, 3]


@operation("DescribeTable", "ListTableVersions", "CreateTableVersion", client="pylance")
def test_compaction_commits_through_the_catalog(rest: RestNamespace, table_id: list[str]) -> None:
    for first in (4, 7, 10):
        write(rest, table_id, some_rows(first), "append")
    dataset = opened(rest, table_id)
    assert dataset.optimize.compact_files().fragments_removed == 4
    catalog = [version.version for version in rows_of_the_catalog(rest, table_id)]
    assert catalog == numbers_in_storage(dataset) == list(range(1, dataset.version + 1))
    assert opened(rest, table_id).to_table()["id"].to_pylist() == list(range(1, 13))


@operation("ListTableVersions", client="pylance")
def test_the_catalog_knows_what_is_in_storage(
    rest: RestNamespace, table_id: list[str], http: httpx.Client
) -> None:
    dataset = write(rest, table_id, some_rows(4), "append")
    on_wire = TableOnWire(http, *table_id)
    manifests = on_wire.manifests()
    known = {
        version.manifest_path.rpartition("/")[2]: version.manifest_size
        for version in rows_of_the_catalog(rest, table_id)
    }
    assert known == {name: len(content) for name, content in manifests.items()}
    assert manifests.keys() == {final_name(number) for number in numbers_in_storage(dataset)}


@operation("DescribeTableVersion", "ListTableVersions", client="pylance")
def test_the_latest_version_is_described_as_it_is_listed(rest: RestNamespace, table_id: list[str]) -> None:
    write(rest, table_id, some_rows(4), "append")
    listed = rows_of_the_catalog(rest, table_id)
    # pylance takes and gives plain dictionaries here.
    latest = rest.describe_table_version({"id": table_id})["version"]
    first = rest.describe_table_version({"id": table_id, "version": 1})["version"]
    assert [TableVersion(**first), TableVersion(**latest)] == listed


@operation("CreateNamespace", "ListNamespaces", "ListTables", client="pylance")
@pytest.mark.parametrize(
    "name", ["with space", "a+b", "a/b", "100%", "größe", "表", "a&b?c=d#e", "x.y", "🌊"]
)
def test_any_name_can_be_used(rest: RestNamespace, namespace: str, name: str) -> None:
    levels = [namespace, name, name]
    rest.create_namespace(CreateNamespaceRequest(id=levels[:2]))
    write(rest, levels, some_rows(), "create")
    write(rest, levels, some_rows(4), "append")
    assert opened(rest, levels).count_rows() == 6
    assert rest.list_namespaces(ListNamespacesRequest(id=[namespace])).namespaces == [name]
    assert rest.list_tables(ListTablesRequest(id=levels[:2])).tables == [name]


@operation("CreateNamespace", "ListNamespaces", "ListTables", client="pylance")
@pytest.mark.parametrize("delimiter", [".", "$", "::"])
def test_any_delimiter_can_be_used(server: RunningServer, namespace: str, delimiter: str) -> None:
    rest = RestNamespace(uri=server.url, delimiter=delimiter)
    levels = [namespace, "inner", "t"]
    rest.create_namespace(CreateNamespaceRequest(id=levels[:2]))
    write(rest, levels, some_rows(), "create")
    assert opened(rest, levels).count_rows() == 3
    assert namespace in rest.list_namespaces(ListNamespacesRequest(id=[])).namespaces
    assert namespace not in rest.list_tables(ListTablesRequest(id=[])).tables


def test_a_base_address_may_end_in_a_slash(server: RunningServer, table_id: list[str]) -> None:
    assert opened(RestNamespace(uri=f"{server.url}/"), table_id).count_rows() == 3


def test_names_with_the_delimiter_are_reached_with_another_one(server: RunningServer, namespace: str) -> None:
    rest = RestNamespace(uri=server.url, delimiter=".")
    levels = [namespace, "cost$usd"]
    write(rest, levels, some_rows(), "create")
    assert opened(rest, levels).count_rows() == 3
