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
