"""lancedb's remote client, pointed at this server: everything goes over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import lance
import lancedb
import pytest
from lance.namespace import RestNamespace
from lancedb import query
from lancedb.remote.db import RemoteDBConnection
from lancedb.remote.table import RemoteTable

from tests.conftest import RunningServer
from tests.protocol.wire import some_rows

# Its own annotations take every default for a missing argument.
asked: Any = query


@pytest.fixture
def database(server: RunningServer) -> RemoteDBConnection:
    connected = lancedb.connect("db://x", api_key="k", host_override=server.url)
    assert isinstance(connected, RemoteDBConnection)
    return connected


@pytest.fixture
def remote(database: RemoteDBConnection) -> Iterator[RemoteTable]:
    """A table at the root, where this client keeps them."""
    name = f"remote{uuid4().hex[:12]}"
    made = database.create_table(name, some_rows(count=5))
    assert isinstance(made, RemoteTable)
    yield made
    database.drop_table(name)


def test_a_created_table_has_its_rows_and_its_schema(remote: RemoteTable) -> None:
    assert (remote.count_rows(), remote.version) == (5, 1)
    assert remote.schema == some_rows().schema


def test_creating_a_table_twice_is_refused(database: RemoteDBConnection, remote: RemoteTable) -> None:
    with pytest.raises(ValueError, match="already exists"):
        database.create_table(remote.name, some_rows())
    assert remote.count_rows() == 5


def test_an_existing_table_is_kept_if_asked_for(database: RemoteDBConnection, remote: RemoteTable) -> None:
    assert database.create_table(remote.name, some_rows(), exist_ok=True).count_rows() == 5


def test_a_table_is_replaced(database: RemoteDBConnection, remote: RemoteTable) -> None:
    database.create_table(remote.name, some_rows(), mode="overwrite")
    assert database.open_table(remote.name).count_rows() == 3


def test_rows_are_added(database: RemoteDBConnection, remote: RemoteTable) -> None:
    assert remote.add(some_rows(6)).version == 2
    assert database.open_table(remote.name).count_rows() == 8


def test_rows_are_counted_by_a_condition(remote: RemoteTable) -> None:
    assert remote.count_rows("id > 3") == 2


def test_the_nearest_vectors_are_found(remote: RemoteTable) -> None:
    found = remote.search([3.1, 0.0]).select(["id"]).limit(2).to_list()
    assert [row["id"] for row in found] == [3, 4]


def test_rows_are_found_by_a_condition(remote: RemoteTable) -> None:
    assert remote.search().where("id > 3").to_arrow()["id"].to_pylist() == [4, 5]


def test_an_older_version_is_searched(remote: RemoteTable) -> None:
    remote.add(some_rows(6))
    remote.checkout(1)
    assert (remote.count_rows(), remote.search([8.0, 0.0]).limit(1).to_list()[0]["id"]) == (5, 5)
    remote.checkout_latest()
    assert remote.count_rows() == 8


def test_versions_are_listed(remote: RemoteTable) -> None:
    remote.add(some_rows(6))
    assert [version["version"] for version in remote.list_versions()] == [1, 2]


def test_tables_are_listed_in_pages(database: RemoteDBConnection, remote: RemoteTable) -> None:
    names, token = [], None
    while True:
        page = database.list_tables(page_token=token, limit=1)
        names += page.tables
        token = page.page_token
        if not token:
            break
    assert remote.name in names
    assert names == sorted(set(names))


def test_a_missing_table_is_not_found(database: RemoteDBConnection) -> None:
    with pytest.raises(ValueError, match="was not found"):
        database.open_table("nowhere")


def found_ids(found: Any) -> list[int]:
    return [row["id"] for row in found.to_list()]


@pytest.mark.operation("UpdateTable", client="remote")
def test_rows_are_updated(remote: RemoteTable) -> None:
    done = remote.update(where="id > 3", values={"text": "it's new"})
    assert (done.rows_updated, done.version) == (2, 2)
    assert remote.count_rows("text = 'it''s new'") == 2
    assert remote.update(values_sql={"id": "id * 10"}).rows_updated == 5
    assert remote.count_rows("id >= 10") == 5


@pytest.mark.operation("DeleteFromTable", client="remote")
def test_rows_are_deleted(remote: RemoteTable) -> None:
    done: Any = remote.delete("id = 1")
    assert (done.num_deleted_rows, done.version) == (1, 2)
    assert remote.count_rows() == 4


@pytest.mark.operation("MergeInsertIntoTable", client="remote")
def test_rows_are_merged(remote: RemoteTable) -> None:
    merge = remote.merge_insert("id").when_matched_update_all(where="target.id < 5")
    done = merge.when_not_matched_insert_all().execute(some_rows(4, 3))
    assert (done.num_updated_rows, done.num_inserted_rows, done.version) == (1, 1, 2)
    keys = remote.merge_insert(["id", "text"]).when_not_matched_insert_all()
    done = keys.when_not_matched_by_source_delete("id > 5").execute(
        some_rows(1, 1), timeout=timedelta(seconds=30)
    )
    assert (done.num_deleted_rows, remote.count_rows()) == (1, 5)


@pytest.mark.operation("QueryTable", client="remote")
def test_several_vectors_are_searched_for_at_once(remote: RemoteTable) -> None:
    found = remote.search([[1.0, 0.0], [5.0, 0.0]]).limit(1).to_list()
    assert [(row["query_index"], row["id"]) for row in found] == [(0, 1), (1, 5)]


@pytest.mark.operation("QueryTable", client="remote")
def test_options_of_vector_searches_have_their_effect(remote: RemoteTable) -> None:
    near = remote.search([1.0, 0.0])
    assert found_ids(near.distance_range(1.0, 10.0)) == [2, 3, 4]
    assert found_ids(remote.search([1.0, 0.0]).where("id > 2", prefilter=False).limit(3)) == [3]
    assert found_ids(remote.search([1.0, 0.0]).limit(2).offset(1)) == [2, 3]
    chosen = (
        remote.search([1.0, 0.0]).distance_type("dot").nprobes(3).refine_factor(2).select({"id": "id * 2"})
    )
    assert found_ids(chosen.limit(1)) == [10]
    assert remote.search([1.0, 0.0]).with_row_id(True).limit(1).to_list()[0]["_rowid"] == 0


@pytest.mark.operation("QueryTable", client="remote")
def test_text_is_searched(remote: RemoteTable) -> None:
    def text(words: Any) -> list[int]:
        return sorted(found_ids(remote.search(words, query_type="fts").limit(10)))

    assert text(asked.MatchQuery("row 3", "text")) == [1, 2, 3, 4, 5]
    assert text(asked.MatchQuery("row 3", "text", operator=asked.FullTextOperator.AND)) == [3]
    assert text(asked.PhraseQuery("row 4", "text")) == [4]
    assert text(asked.MultiMatchQuery("2", ["text"])) == [2]
    assert text(asked.BoostQuery(asked.MatchQuery("2 3", "text"), asked.MatchQuery("3", "text"))) == [2, 3]
    both = asked.BooleanQuery(
        [
            (asked.Occur.MUST, asked.MatchQuery("row", "text")),
            (asked.Occur.MUST_NOT, asked.MatchQuery("1 2", "text")),
        ]
    )
    assert text(both) == [3, 4, 5]


@pytest.mark.operation("QueryTable", client="remote")
def test_rows_are_put_in_order_and_taken(remote: RemoteTable) -> None:
    order = [asked.ColumnOrdering(column_name="id", ascending=False, nulls_first=True)]
    assert found_ids(remote.search().order_by(order).limit(2)) == [5, 4]
    assert found_ids(remote.take_offsets([2])) == [3]
    assert found_ids(remote.take_row_ids([4])) == [5]


@pytest.mark.operation("ExplainTableQueryPlan", "AnalyzeTableQueryPlan", client="remote")
def test_plans_are_shown(remote: RemoteTable) -> None:
    assert "KNNVectorDistance" in remote.search([1.0, 0.0]).limit(2).explain_plan(True)
    assert "output_rows=2" in remote.search([1.0, 0.0]).limit(2).analyze_plan()


@pytest.mark.operation("InsertIntoTable", "UpdateTable", "DeleteFromTable", client="remote")
@pytest.mark.operation("MergeInsertIntoTable", "QueryTable", "CountTableRows", client="remote")
def test_a_branch_is_changed_alone(
    database: RemoteDBConnection, remote: RemoteTable, server: RunningServer
) -> None:
    rest = RestNamespace(uri=server.url)
    lance.dataset(namespace_client=rest, table_id=[remote.name]).create_branch("dev")
    dev = database.open_table(remote.name, branch="dev")
    dev.add(some_rows(6))
    dev.update(where="id = 1", values={"text": "dev"})
    dev.delete("id = 2")
    dev.merge_insert("id").when_not_matched_insert_all().execute(some_rows(20, 1))
    assert found_ids(dev.search([20.0, 0.0]).limit(1)) == [20]
    assert (dev.count_rows(), dev.count_rows("text = 'dev'")) == (8, 1)
    assert (remote.count_rows(), remote.count_rows("text = 'dev'"), remote.version) == (5, 0, 1)
