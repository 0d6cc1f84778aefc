"""Operations of the specification through the methods of pylance's `RestNamespace`."""

from __future__ import annotations

import time
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance.namespace import RestNamespace
from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableColumnNotFoundError,
    TableIndexNotFoundError,
    TableNotFoundError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)
from lance_namespace_urllib3_client import models

from tests.protocol.wire import some_rows, stream

INDEX_TIMEOUT_SECONDS = 240
INDEXED_ROWS = 300

operation = pytest.mark.operation


@pytest.fixture
def table(rest: RestNamespace, namespace: str) -> list[str]:
    """A table of three rows, made by the server."""
    levels = [namespace, "t"]
    rest.create_table(api.CreateTableRequest(id=levels), stream(some_rows()))
    return levels


def ids(rest: RestNamespace, levels: list[str], **options: Any) -> list[int]:
    """What the server answers to a query for all rows."""
    nothing = models.QueryTableRequestVector()
    request = models.QueryTableRequest(id=levels, k=1000, vector=nothing, **options)
    with pa.ipc.open_file(rest.query_table(request).data) as answer:
        found: list[int] = answer.read_all()["id"].to_pylist()
    return sorted(found)


def opened(rest: RestNamespace, levels: list[str], version: Any = None) -> lance.LanceDataset:
    return lance.dataset(namespace_client=rest, table_id=levels, version=version)


def wait_for(rest: RestNamespace, levels: list[str], transaction: str | None) -> None:
    """Building an index goes on after the answer; the transaction says when it has ended."""
    assert transaction is not None
    asked = models.DescribeTransactionRequest(id=[*levels, transaction.rpartition("$")[2]])
    give_up_at = time.monotonic() + INDEX_TIMEOUT_SECONDS
    while (status := rest.describe_transaction(asked).status.upper()) in ("QUEUED", "RUNNING"):
        assert time.monotonic() < give_up_at
        time.sleep(0.2)
    assert status == "SUCCEEDED"


def indexes_of(rest: RestNamespace, levels: list[str]) -> dict[str, list[str]]:
    listed = rest.list_table_indices(api.ListTableIndicesRequest(id=levels)).indexes
    return {index.index_name: index.columns for index in listed}


@operation("CreateNamespace", "DescribeNamespace", "NamespaceExists", client="pylance")
def test_a_namespace_is_created_and_described(rest: RestNamespace, namespace: str) -> None:
    inner = [namespace, "inner"]
    rest.create_namespace(api.CreateNamespaceRequest(id=inner, properties={"team": "tide"}))
    rest.namespace_exists(api.NamespaceExistsRequest(id=inner))
    described = rest.describe_namespace(api.DescribeNamespaceRequest(id=inner))
    assert described.properties == {"team": "tide"}
    with pytest.raises(NamespaceNotFoundError):
        rest.namespace_exists(api.NamespaceExistsRequest(id=[namespace, "nowhere"]))


@operation("ListNamespaces", client="pylance")
def test_namespaces_are_listed_in_pages(rest: RestNamespace, namespace: str) -> None:
    for name in ("b", "c", "a"):
        rest.create_namespace(api.CreateNamespaceRequest(id=[namespace, name]))
    first = rest.list_namespaces(api.ListNamespacesRequest(id=[namespace], limit=2))
    rest_of_them = api.ListNamespacesRequest(id=[namespace], limit=2, page_token=first.page_token)
    assert (first.namespaces, rest.list_namespaces(rest_of_them).namespaces) == (["a", "b"], ["c"])


@operation("DropNamespace", client="pylance")
def test_a_namespace_with_tables_is_dropped_only_by_cascade(rest: RestNamespace, table: list[str]) -> None:
    with pytest.raises(NamespaceNotEmptyError):
        rest.drop_namespace(api.DropNamespaceRequest(id=table[:1]))
    rest.drop_namespace(api.DropNamespaceRequest(id=table[:1], behavior="Cascade"))
    with pytest.raises(NamespaceNotFoundError):
        rest.describe_namespace(api.DescribeNamespaceRequest(id=table[:1]))


@operation("CreateTable", "DescribeTable", "TableExists", client="pylance")
def test_a_table_is_created_and_described(rest: RestNamespace, table: list[str]) -> None:
    rest.table_exists(api.TableExistsRequest(id=table))
    described = rest.describe_table(api.DescribeTableRequest(id=table))
    assert (described.version, described.managed_versioning) == (1, True)
    assert described.var_schema is not None
    assert [field.name for field in described.var_schema.fields] == ["id", "text", "vector"]
    with pytest.raises(TableAlreadyExistsError):
        rest.create_table(api.CreateTableRequest(id=table), stream(some_rows()))


@operation("DeclareTable", "ListTables", client="pylance")
def test_a_declared_table_is_listed_on_request_only(rest: RestNamespace, table: list[str]) -> None:
    rest.declare_table(api.DeclareTableRequest(id=[table[0], "declared"]))
    listed = rest.list_tables(api.ListTablesRequest(id=table[:1]))
    made = rest.list_tables(api.ListTablesRequest(id=table[:1], include_declared=False))
    assert (listed.tables, made.tables) == (["declared", "t"], ["t"])


@operation("ListAllTables", client="pylance")
def test_all_tables_are_listed_by_their_whole_names(rest: RestNamespace, table: list[str]) -> None:
    inner = [table[0], "inner", "u"]
    rest.create_namespace(api.CreateNamespaceRequest(id=inner[:2]))
    rest.declare_table(api.DeclareTableRequest(id=inner))
    listed = rest.list_all_tables(api.ListTablesRequest()).tables
    assert {"$".join(table), "$".join(inner)} <= set(listed)


@operation("DropTable", client="pylance")
def test_a_dropped_table_is_gone(rest: RestNamespace, table: list[str]) -> None:
    rest.drop_table(api.DropTableRequest(id=table))
    with pytest.raises(TableNotFoundError):
        rest.describe_table(api.DescribeTableRequest(id=table))


@operation("DeregisterTable", "RegisterTable", client="pylance")
def test_a_deregistered_table_can_be_registered_again(rest: RestNamespace, table: list[str]) -> None:
    location = rest.deregister_table(api.DeregisterTableRequest(id=table)).location
    assert location is not None
    with pytest.raises(TableNotFoundError):
        rest.describe_table(api.DescribeTableRequest(id=table))
    again = [table[0], "again"]
    rest.register_table(api.RegisterTableRequest(id=again, location=location))
    assert ids(rest, again) == [1, 2, 3]
    lance.write_dataset(some_rows(4), namespace_client=rest, table_id=again, mode="append")
    assert ids(rest, again) == [1, 2, 3, 4, 5, 6]


@operation("RenameTable", client="pylance")
def test_a_renamed_table_keeps_its_versions(rest: RestNamespace, table: list[str]) -> None:
    lance.write_dataset(some_rows(4), namespace_client=rest, table_id=table, mode="append")
    rest.rename_table(api.RenameTableRequest(id=table, new_table_name="renamed"))
    renamed = [table[0], "renamed"]
    assert opened(rest, renamed, 1).count_rows() == 3
    lance.write_dataset(some_rows(7), namespace_client=rest, table_id=renamed, mode="append")
    listed = rest.list_table_versions(api.ListTableVersionsRequest(id=renamed)).versions
    assert [version.version for version in listed] == [1, 2, 3]
    with pytest.raises(TableNotFoundError):
        rest.describe_table(api.DescribeTableRequest(id=table))


@operation("InsertIntoTable", "QueryTable", "CountTableRows", client="pylance")
def test_rows_are_inserted_counted_and_found(rest: RestNamespace, table: list[str]) -> None:
    request = api.InsertIntoTableRequest(id=table, mode="append")
    rest.insert_into_table(request, stream(some_rows(4)))
    counted = rest.count_table_rows(api.CountTableRowsRequest(id=table, predicate="id > 2"))
    assert getattr(counted, "count", counted) == 4
    assert ids(rest, table, filter="id > 4") == [5, 6]
    assert ids(rest, table, version=1) == [1, 2, 3]


@operation("MergeInsertIntoTable", client="pylance")
def test_rows_are_merged(rest: RestNamespace, table: list[str]) -> None:
    request = models.MergeInsertIntoTableRequest(
        id=table, on=["id"], when_matched_update_all=True, when_not_matched_insert_all=True
    )
    merged = rest.merge_insert_into_table(request, stream(some_rows(3)))
    assert (merged.num_updated_rows, merged.num_inserted_rows) == (1, 2)
    assert ids(rest, table) == [1, 2, 3, 4, 5]


@operation("UpdateTable", "DeleteFromTable", client="pylance")
def test_rows_are_updated_and_deleted(rest: RestNamespace, table: list[str]) -> None:
    update = api.UpdateTableRequest(id=table, predicate="id = 1", updates=[["text", "'new'"]])
    assert rest.update_table(update).updated_rows == 1
    rest.delete_from_table(api.DeleteFromTableRequest(id=table, predicate="id = 2"))
    found = opened(rest, table).to_table(columns=["id", "text"]).sort_by("id")
    assert found.to_pylist() == [{"id": 1, "text": "new"}, {"id": 3, "text": "row 3"}]


@operation("ExplainTableQueryPlan", "AnalyzeTableQueryPlan", client="pylance")
def test_a_query_is_explained_and_analysed(rest: RestNamespace, table: list[str]) -> None:
    query = models.QueryTableRequest(id=table, k=2, filter="id > 1", vector=models.QueryTableRequestVector())
    explained = rest.explain_table_query_plan(models.ExplainTableQueryPlanRequest(id=table, query=query))
    analysed = rest.analyze_table_query_plan(
        models.AnalyzeTableQueryPlanRequest(
            id=table, k=2, filter="id > 1", vector=models.QueryTableRequestVector()
        )
    )
    assert "LanceRead" in explained
    assert "metrics" in analysed


@operation("GetTableStats", client="pylance")
def test_a_table_has_statistics(rest: RestNamespace, table: list[str]) -> None:
    stats = rest.get_table_stats(models.GetTableStatsRequest(id=table))
    assert (stats.num_rows, stats.num_indices, stats.fragment_stats.num_fragments) == (3, 0, 1)
    assert stats.total_bytes > 0


@operation("ListTableVersions", "DescribeTableVersion", client="pylance")
def test_versions_are_listed_in_pages(rest: RestNamespace, table: list[str]) -> None:
    for first in (4, 7):
        lance.write_dataset(some_rows(first), namespace_client=rest, table_id=table, mode="append")
    newest = rest.list_table_versions(models.ListTableVersionsRequest(id=table, limit=2, descending=True))
    assert [version.version for version in newest.versions] == [3, 2]
    assert rest.describe_table_version({"id": table})["version"]["version"] == 3
    with pytest.raises(TableVersionNotFoundError):
        rest.describe_table_version({"id": table, "version": 9})


@operation("RestoreTable", client="pylance")
def test_an_older_version_is_restored(rest: RestNamespace, table: list[str]) -> None:
    lance.write_dataset(some_rows(4), namespace_client=rest, table_id=table, mode="overwrite")
    rest.restore_table(models.RestoreTableRequest(id=table, version=1))
    assert (opened(rest, table).version, ids(rest, table)) == (3, [1, 2, 3])


@operation("BatchDeleteTableVersions", client="pylance")
def test_records_of_old_versions_are_deleted(rest: RestNamespace, table: list[str]) -> None:
    for first in (4, 7):
        lance.write_dataset(some_rows(first), namespace_client=rest, table_id=table, mode="append")
    rest.batch_delete_table_versions({"id": table, "ranges": [{"start_version": 1, "end_version": 2}]})
    with pytest.raises(TableVersionNotFoundError):
        rest.describe_table_version({"id": table, "version": 1})
    assert opened(rest, table).count_rows() == 9


@operation("AlterTableAddColumns", "AlterTableAlterColumns", "AlterTableDropColumns", client="pylance")
def test_columns_are_added_altered_and_dropped(rest: RestNamespace, table: list[str]) -> None:
    added = models.AddColumnsEntry(name="twice", expression="id * 2")
    rest.alter_table_add_columns(models.AlterTableAddColumnsRequest(id=table, new_columns=[added]))
    renamed = models.AlterColumnsEntry(path="text", rename="words")
    rest.alter_table_alter_columns(models.AlterTableAlterColumnsRequest(id=table, alterations=[renamed]))
    rest.alter_table_drop_columns(models.AlterTableDropColumnsRequest(id=table, columns=["vector"]))
    found = opened(rest, table).to_table().sort_by("id").to_pylist()
    assert found[0] == {"id": 1, "words": "row 1", "twice": 2}


@operation("AlterTableDropColumns", client="pylance")
def test_a_column_that_does_not_exist_is_not_dropped(rest: RestNamespace, table: list[str]) -> None:
    with pytest.raises(TableColumnNotFoundError):
        rest.alter_table_drop_columns(models.AlterTableDropColumnsRequest(id=table, columns=["nothing"]))
    assert opened(rest, table).version == 1


@operation("UpdateTableSchemaMetadata", client="pylance")
def test_the_metadata_of_a_schema_is_replaced(rest: RestNamespace, table: list[str]) -> None:
    for metadata in ({"a": "1", "b": "2"}, {"c": "3"}):
        request = models.UpdateTableSchemaMetadataRequest(id=table, metadata=metadata)
        assert rest.update_table_schema_metadata(request).metadata == metadata
    assert opened(rest, table).schema.metadata == {b"c": b"3"}


@operation(
    "CreateTableTag",
    "GetTableTagVersion",
    "ListTableTags",
    "UpdateTableTag",
    "DeleteTableTag",
    client="pylance",
)
def test_tags_live_their_life(rest: RestNamespace, table: list[str]) -> None:
    lance.write_dataset(some_rows(4), namespace_client=rest, table_id=table, mode="append")
    rest.create_table_tag(models.CreateTableTagRequest(id=table, tag="gold", version=1))
    asked = models.GetTableTagVersionRequest(id=table, tag="gold")
    assert rest.get_table_tag_version(asked).version == 1
    assert opened(rest, table, "gold").count_rows() == 3
    rest.update_table_tag(models.UpdateTableTagRequest(id=table, tag="gold", version=2))
    listed = rest.list_table_tags(models.ListTableTagsRequest(id=table)).tags
    assert {name: tag.version for name, tag in listed.items()} == {"gold": 2}
    rest.delete_table_tag(models.DeleteTableTagRequest(id=table, tag="gold"))
    with pytest.raises(TableTagNotFoundError):
        rest.get_table_tag_version(asked)


@operation("CreateTableBranch", "ListTableBranches", "DeleteTableBranch", client="pylance")
def test_branches_live_their_life(rest: RestNamespace, table: list[str]) -> None:
    rest.create_table_branch(models.CreateTableBranchRequest(id=table, name="dev", from_version=1))
    listed = rest.list_table_branches(models.ListTableBranchesRequest(id=table)).branches
    assert {name: branch.parent_version for name, branch in listed.items()} == {"dev": 1}
    insert = models.InsertIntoTableRequest(id=table, mode="append", branch="dev")
    rest.insert_into_table(insert, stream(some_rows(4)))
    assert (ids(rest, table), ids(rest, table, branch="dev")) == ([1, 2, 3], [1, 2, 3, 4, 5, 6])
    assert opened(rest, table).checkout_version(("dev", None)).count_rows() == 6
    rest.delete_table_branch(models.DeleteTableBranchRequest(id=table, name="dev"))
    assert rest.list_table_branches(models.ListTableBranchesRequest(id=table)).branches == {}


@operation(
    "CreateTableScalarIndex",
    "ListTableIndices",
    "DescribeTableIndexStats",
    "DropTableIndex",
    client="pylance",
)
def test_a_scalar_index_is_built_described_and_dropped(rest: RestNamespace, table: list[str]) -> None:
    request = models.CreateTableIndexRequest(id=table, column="id", index_type="BTREE", name="by_id")
    wait_for(rest, table, rest.create_table_scalar_index(request).transaction_id)
    assert indexes_of(rest, table) == {"by_id": ["id"]}
    asked = models.DescribeTableIndexStatsRequest(id=table, index_name="by_id")
    assert rest.describe_table_index_stats(asked).num_indexed_rows == 3
    rest.drop_table_index(models.DropTableIndexRequest(id=table, index_name="by_id"))
    with pytest.raises(TableIndexNotFoundError):
        rest.describe_table_index_stats(asked)


@operation("CreateTableIndex", "DescribeTransaction", client="pylance")
def test_an_index_of_vectors_is_a_transaction_that_ends(rest: RestNamespace, namespace: str) -> None:
    levels = [namespace, "vectors"]
    rest.create_table(api.CreateTableRequest(id=levels), stream(some_rows(count=INDEXED_ROWS)))
    request = models.CreateTableIndexRequest(
        id=levels, column="vector", index_type="IVF_FLAT", name="near", distance_type="l2"
    )
    wait_for(rest, levels, rest.create_table_index(request).transaction_id)
    assert indexes_of(rest, levels) == {"near": ["vector"]}
    vector = models.QueryTableRequestVector(single_vector=[7.1, 0.0])
    near = models.QueryTableRequest(id=levels, k=2, vector=vector)
    with pa.ipc.open_file(rest.query_table(near).data) as answer:
        assert answer.read_all()["id"].to_pylist() == [7, 8]


@operation("AlterTransaction", client="pylance")
def test_an_action_that_the_client_leaves_empty_is_refused(rest: RestNamespace, table: list[str]) -> None:
    """pylance loses the name of the action on the way."""
    status = models.AlterTransactionSetStatus(status="Canceled")
    action = models.AlterTransactionAction(setStatusAction=status)
    with pytest.raises(LanceNamespaceError):
        rest.alter_transaction(models.AlterTransactionRequest(id=[*table, "1"], actions=[action]))
