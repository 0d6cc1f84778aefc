"""Views of lancedb's remote client, given as SQL: materialized ones and those planned on every read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
from lancedb import vector_dedup
from lancedb.materialized_view import MaterializedView
from lancedb.remote.db import RemoteDBConnection
from lancedb.remote.errors import HttpError
from lancedb.remote.table import RemoteTable

from tests.protocol.remote import PATIENCE, database, docs, new_name, numbers
from tests.protocol.wire import check_refusal

__all__ = ["database", "docs"]


@pytest.fixture
def view_name(database: RemoteDBConnection) -> Iterator[str]:
    name = new_name("view")
    yield name
    if name in database.list_materialized_views():
        database.drop_materialized_view(name)
    if name in database.list_views():
        database.drop_view(name)


def rows(table: Any) -> list[tuple[Any, ...]]:
    found = table.search().to_arrow()
    shown = [name for name in found.schema.names if not name.startswith("__")]
    return sorted(tuple(row[name] for name in shown) for row in found.to_pylist())


@pytest.mark.operation("CreateMaterializedView", "RefreshMaterializedView", client="remote")
def test_a_view_is_filled_and_follows_its_source(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    job = database.create_materialized_view_async(
        view_name, docs.name, select={"id": "id", "next": "x + 1"}, where="id > 1"
    )
    job.wait(PATIENCE)
    view = database.open_materialized_view(view_name)
    assert rows(view.table) == [(2, 3.0), (3, 4.0)]
    docs.add(numbers(4, 1))
    docs.delete("id = 2")
    result = view.refresh()
    assert (result.mode, result.rows_written) == ("incremental", 1)
    assert rows(view.table) == [(3, 4.0), (4, 5.0)]
    assert view.refresh().mode == "no_op"
    full = view.refresh(full=True)
    assert (full.mode, full.rows_written, full.source_version) == ("rebuild", 2, docs.version)


@pytest.mark.operation("CreateMaterializedView", client="remote")
def test_a_view_is_created_empty_if_asked_for(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    view = database.create_materialized_view(view_name, docs.name, with_no_data=True)
    assert isinstance(view, MaterializedView)
    assert view.table.count_rows() == 0
    assert view.refresh().rows_written == 3
    assert rows(view.table) == [(1, 1.0, "n1"), (2, 2.0, "n2"), (3, 3.0, "n3")]


@pytest.mark.operation("CreateMaterializedView", client="remote")
def test_a_view_has_its_limit(database: RemoteDBConnection, docs: RemoteTable, view_name: str) -> None:
    view = database.create_materialized_view(view_name, docs.name, select=["id"], limit=2)
    assert rows(view.table) == [(1,), (2,)]


def test_the_definition_of_a_view_is_told(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    view = database.create_materialized_view(
        view_name, docs.name, select={"id": "id", "a b": "x*2"}, where="`id` > 1", limit=5, with_no_data=True
    )
    assert view.definition.query == f"SELECT id, x * 2 AS `a b` FROM {docs.name} WHERE id > 1 LIMIT 5"
    assert database.open_materialized_view(view_name).definition == view.definition
    assert b"mv.definition" in (view.table.schema.metadata or {})


def test_views_are_listed_and_dropped(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    database.create_materialized_view(view_name, docs.name, with_no_data=True)
    assert view_name in database.list_materialized_views()
    assert docs.name not in database.list_materialized_views()
    database.drop_materialized_view(view_name)
    assert view_name not in database.list_materialized_views()
    with pytest.raises(ValueError, match="was not found"):
        database.open_materialized_view(view_name)


def test_a_table_is_not_opened_or_dropped_as_a_view(database: RemoteDBConnection, docs: RemoteTable) -> None:
    with pytest.raises(ValueError, match=docs.name):
        database.open_materialized_view(docs.name)
    with pytest.raises((HttpError, ValueError)):
        database.drop_materialized_view(docs.name)
    assert docs.count_rows() == 3


def test_what_no_view_can_be_made_from_is_named(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    with pytest.raises(HttpError, match=r"406 .*function in FROM"):
        database.create_materialized_view(
            view_name, vector_dedup(docs.name, column="x", distance_threshold=1.0)
        )
    with pytest.raises(HttpError, match="already exists"):
        database.create_materialized_view(docs.name, docs.name)


@pytest.mark.parametrize(
    ("statement", "status", "code", "problem"),
    [
        ("SELECT id FROM {0} JOIN {0} AS b", 406, 0, "JOIN"),
        ("SELECT id FROM {0} GROUP BY id", 406, 0, "GROUP BY"),
        ("SELECT id FROM {0} ORDER BY id", 406, 0, "ORDER BY"),
        ("SELECT DISTINCT id FROM {0}", 406, 0, "DISTINCT"),
        ("SELECT id FROM {0}, UNNEST(x) AS y", 406, 0, "more than one table"),
        ("SELECT count(*) AS n FROM {0}", 406, 0, "count"),
        ("SELECT row_number() OVER () AS n FROM {0}", 406, 0, "OVER"),
        ("SELECT id FROM (SELECT id FROM {0})", 406, 0, "inside the query"),
        ("SELECT *, id AS i FROM {0}", 406, 0, "beside other columns"),
        ("SELECT id + 1 FROM {0}", 400, 13, "needs a name"),
        ("SELECT id, id FROM {0}", 400, 13, "two columns"),
        ("SELECT id FROM {0} LIMIT many", 400, 13, "whole number"),
        ("SELECT nowhere FROM {0}", 400, 13, "nowhere"),
        ("SELECT id FROM {0} WHERE nowhere = 1", 400, 13, "nowhere"),
        ("SELECT id FROM {0} WHERE", 400, 13, "WHERE"),
        ("SELECT id FROM {0}; DROP TABLE {0}", 400, 13, ""),
        ("SELECT id FROM {0} -- all", 400, 13, "comment"),
        ("DELETE FROM {0}", 400, 13, ""),
        ('SELECT "id FROM {0}', 400, 13, "cannot be read"),
    ],
)
@pytest.mark.parametrize("kind", ["materialized_view", "view"])
def test_a_statement_that_cannot_be_is_refused(
    http: httpx.Client, docs: RemoteTable, kind: str, statement: str, status: int, code: int, problem: str
) -> None:
    query = statement.format(docs.name)
    answer = http.post(f"/v1/{kind}/{new_name('v')}/create", json={"query": query})
    check_refusal(answer, status, code, "query")
    assert problem in answer.json()["error"]


def test_a_view_is_made_over_a_table_in_a_namespace(http: httpx.Client, namespace: str) -> None:
    made = http.post(
        f"/v1/table/{namespace}$t/create",
        content=_stream(numbers()),
        headers={"content-type": "application/vnd.apache.arrow.stream"},
    )
    assert made.status_code == 200
    statement = f'SELECT "id", `name` AS "the name" FROM {namespace}."t" WHERE "name" IS DISTINCT FROM \'n1\''
    body = {"query": statement, "with_no_data": True}
    assert http.post(f"/v1/materialized_view/{namespace}$v/create", json=body).status_code == 201
    told = http.post(f"/v1/materialized_view/{namespace}$v/describe", json={}).json()
    assert (told["source_namespace"], told["source_table"], told["version"]) == ([namespace], "t", 1)
    assert told["filter"] == "`name` IS DISTINCT FROM 'n1'"
    assert told["projections"][1] == {"output_column": "the name", "expression": "`name`"}
    assert http.get(f"/v1/namespace/{namespace}/materialized_view/list").json() == {"views": ["v"]}


def test_a_plain_view_shows_its_source_as_it_is_now(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    statement = f"SELECT id, x * 2 AS twice, name AS label FROM {docs.name} WHERE id > 1"
    made = database.create_view(view_name, statement)
    assert (made.query, made.default_database, made.schema.names) == (
        statement,
        "x",
        ["id", "twice", "label"],
    )
    assert database.describe_view(view_name) == made
    assert view_name in database.list_views()
    view = database.open_table(view_name)
    assert view.schema == made.schema
    assert rows(view) == [(2, 4.0, "n2"), (3, 6.0, "n3")]
    docs.add(numbers(4, 1))
    assert rows(view) == [(2, 4.0, "n2"), (3, 6.0, "n3"), (4, 8.0, "n4")]


def test_a_plain_view_is_searched_by_its_own_columns(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    database.create_view(view_name, f"SELECT id AS x, x AS id, name FROM {docs.name}")
    view = database.open_table(view_name)
    assert view.count_rows() == 3
    assert view.count_rows("x >= 2 AND id < 3.0") == 1
    with pytest.raises(HttpError, match="parenthesis"):
        view.count_rows("x = 1) OR (x = 2")
    found = view.search().where("x = 3 OR name = 'n1'").select(["name"]).to_arrow()
    assert sorted(found["name"].to_pylist()) == ["n1", "n3"]
    assert view.search().select({"sum": "x + id"}).to_arrow()["sum"].to_pylist() == [2.0, 4.0, 6.0]


def test_hidden_columns_of_a_source_are_not_in_its_view(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    database.create_view(view_name, f"SELECT id FROM {docs.name} LIMIT 2")
    view = database.open_table(view_name)
    assert (view.count_rows(), len(view.search().to_arrow())) == (2, 2)
    with pytest.raises(HttpError, match=r"406 .*LIMIT"):
        view.count_rows("id = 1")
    database.drop_view(view_name)
    database.create_view(view_name, f"SELECT id FROM {docs.name}")
    with pytest.raises((HttpError, ValueError), match="no column 'name'"):
        database.open_table(view_name).search().where("name = 'n1'").to_arrow()


def test_a_plain_view_is_not_written(database: RemoteDBConnection, docs: RemoteTable, view_name: str) -> None:
    database.create_view(view_name, f"SELECT id FROM {docs.name}")
    with pytest.raises(HttpError, match="is a view"):
        database.open_table(view_name).add(pa.table({"id": [9]}))
    with pytest.raises(HttpError, match="already exists"):
        database.create_table(view_name, numbers(), mode="overwrite")
    with pytest.raises(HttpError, match="already exists"):
        database.create_view(view_name, f"SELECT id FROM {docs.name}")
    assert docs.count_rows() == 3


def test_a_dropped_plain_view_frees_its_name(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    database.create_view(view_name, f"SELECT * FROM {docs.name}")
    with pytest.raises((HttpError, ValueError)):
        database.drop_view(docs.name)
    database.drop_view(view_name)
    assert view_name not in database.list_views()
    database.create_table(view_name, numbers())
    database.drop_table(view_name)


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
