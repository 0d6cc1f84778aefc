"""lancedb's namespace connection, sending its queries to the server instead of reading the files itself."""

from __future__ import annotations

from typing import Any

import lancedb
import pytest
from lancedb import query

from tests.conftest import RunningServer
from tests.protocol.wire import TableOnWire

pytestmark = pytest.mark.operation("QueryTable", client="lancedb")
# Its own annotations take every default for a missing argument.
asked: Any = query


@pytest.fixture
def pushed(server: RunningServer, table: TableOnWire) -> Any:
    database = lancedb.connect_namespace(
        "rest", {"uri": server.url}, namespace_client_pushdown_operations=["QueryTable"]
    )
    return database.open_table(table.name, namespace_path=[table.namespace])


def test_rows_are_found_by_a_condition(pushed: Any) -> None:
    assert pushed.search().where("id > 1").select(["id"]).limit(9).to_list() == [{"id": 2}, {"id": 3}]


def test_text_is_found_by_queries_that_arrive_printed(pushed: Any) -> None:
    def ids(words: Any) -> list[int]:
        return sorted(row["id"] for row in pushed.search(words).limit(9).to_list())

    both = asked.MatchQuery("row 3", "text", operator=asked.FullTextOperator.AND)
    assert ids(both) == [3]
    assert ids(asked.PhraseQuery("row 2", "text")) == [2]
    not_first = [(asked.Occur.MUST, asked.MatchQuery("row", "text"))]
    not_first.append((asked.Occur.MUST_NOT, asked.MatchQuery("1", "text")))
    assert ids(asked.BooleanQuery(not_first)) == [2, 3]


def test_a_printed_query_that_cannot_be_read_is_refused(pushed: Any) -> None:
    with pytest.raises(RuntimeError, match="send it as structured_query"):
        pushed.search(asked.MultiMatchQuery("row", ["text"])).limit(9).to_list()


def test_a_view_is_opened_by_location_and_queried_on_the_server(
    server: RunningServer, table: TableOnWire
) -> None:
    """The files have the internal column, and the server returns it only by name."""
    body = {"kind": "query", "source_query": f"SELECT id FROM {table.namespace}.t"}
    path = f"/v1/materialized_view/{table.namespace}$v/create"
    assert table.http.post(path, json=body).status_code == 201
    opened = []
    for operations in ([], ["QueryTable"]):
        database = lancedb.connect_namespace(
            "rest", {"uri": server.url}, namespace_client_pushdown_operations=operations
        )
        opened.append(database.open_table("v", namespace_path=[table.namespace]))
    assert [view.schema.names for view in opened] == [["__source_row_id", "id"]] * 2
    by_location, pushed = (view.search().limit(9).to_arrow() for view in opened)
    assert (by_location.column_names, pushed.column_names) == (["__source_row_id", "id"], ["id"])
    named = opened[1].search().select(["__source_row_id"]).limit(9).to_arrow()
    assert named.column_names == ["__source_row_id"]
