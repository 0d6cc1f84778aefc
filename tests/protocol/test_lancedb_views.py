"""Views of lancedb's remote client, given as SQL: materialized ones and those planned on every read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import lancedb
import pyarrow as pa
import pytest
from lancedb import vector_dedup
from lancedb.exceptions import JobFailedError
from lancedb.materialized_view import MaterializedView
from lancedb.remote.db import RemoteDBConnection
from lancedb.remote.errors import HttpError, RetryError
from lancedb.remote.table import RemoteTable

from tests.conftest import RunningServer
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


def ended(http: httpx.Client, job_id: str) -> None:
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while time.monotonic() < deadline:
        job = http.post("/v1/jobs/describe", json={"job_id": job_id}).json()
        if job["job_state"] != "IN_PROGRESS":
            assert job["job_state"] == "DONE", job
            return
        time.sleep(0.2)
    raise AssertionError(f"job {job_id} is not over")


def rows(table: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.search().to_arrow().to_pylist())


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
    # All rows are computed again, and found to be there.
    assert (full.mode, full.rows_written, full.source_version) == ("rebuild", 0, docs.version)


def outcome(result: Any) -> tuple[str, int, int, int]:
    return result.mode, result.rows_written, result.source_version, result.version


@pytest.mark.operation("RefreshMaterializedView", client="remote")
def test_each_mode_of_a_refresh_is_told_in_the_words_of_the_client(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    view = database.create_materialized_view(view_name, docs.name, select=["id"], with_no_data=True)
    first = docs.version
    assert outcome(view.refresh()) == ("rebuild", 3, first, 2)
    assert outcome(view.refresh()) == ("no_op", 0, first, 2)
    docs.add(numbers(4, 2))
    assert outcome(view.refresh()) == ("incremental", 2, first + 1, 3)
    docs.delete("id = 1")
    assert outcome(view.refresh(full=True)) == ("rebuild", 0, first + 2, 4)
    assert view.table.version == 4


@pytest.mark.operation("RefreshMaterializedView", client="remote")
def test_a_view_goes_to_the_version_of_its_source_that_is_asked_for(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    view = database.create_materialized_view(view_name, docs.name, select=["id", "x"])
    first = docs.version
    docs.add(numbers(4, 1))
    docs.update(where="id = 1", values={"x": 10.0})
    docs.delete("id = 2")
    assert view.refresh(source_version=first + 1).source_version == first + 1
    assert rows(view.table) == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert view.refresh().source_version == docs.version
    assert rows(view.table) == [(1, 10.0), (3, 3.0), (4, 4.0)]
    assert view.refresh(source_version=first).source_version == first
    assert rows(view.table) == [(1, 1.0), (2, 2.0), (3, 3.0)]
    full = view.refresh(full=True, source_version=first + 1)
    assert (full.mode, full.source_version) == ("rebuild", first + 1)
    assert rows(view.table) == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    with pytest.raises(HttpError, match=r"400 .*has no version 99"):
        view.refresh(source_version=99)


@pytest.mark.operation("RefreshMaterializedView", client="remote")
def test_a_refresh_is_a_job(database: RemoteDBConnection, docs: RemoteTable, view_name: str) -> None:
    view = database.create_materialized_view(view_name, docs.name, select=["id"], with_no_data=True)
    job = view.refresh_async()
    assert job.id is not None
    assert outcome(job.wait(PATIENCE)) == ("rebuild", 3, docs.version, 2)
    (listed,) = [info for info in database.list_jobs() if info.job_id == job.id]
    assert (listed.table, listed.job_type, listed.state) == (view_name, "refresh", "finished")
    again = database.open_job(job.id)
    again.refresh()
    assert (again.state, again.spec) == ("finished", {"table": view_name})
    assert again.result is not None
    assert (again.result["mode"], again.result["reason"]) == ("rebuild", "the view has never been refreshed")
    assert job.events()["state"].to_pylist()[-1] == "done"


@pytest.mark.operation("CreateMaterializedView", client="remote")
def test_filling_a_new_view_is_a_job_and_creating_an_empty_one_is_none(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    filling = database.create_materialized_view_async(view_name, docs.name)
    assert filling.id is not None
    filling.wait(PATIENCE)
    assert database.open_table(view_name).count_rows() == 3
    empty = new_name("view")
    creation = database.create_materialized_view_async(empty, docs.name, with_no_data=True)
    assert (creation.id, creation.status()) == (None, "finished")
    assert database.open_table(empty).count_rows() == 0
    dropping = database.drop_materialized_view_async(empty)
    assert (dropping.id, dropping.status()) == (None, "finished")
    assert empty not in database.list_materialized_views()


@pytest.mark.operation("CreateMaterializedView", client="remote")
@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (None, [(2, 2.0, "n2"), (3, 3.0, "n3")]),
        ("name", [("n2",), ("n3",)]),
        (["name", "id"], [("n2", 2), ("n3", 3)]),
        ([("twice", "x * 2"), "id"], [(4.0, 2), (6.0, 3)]),
        ({"a b": "concat(name, '!')"}, [("n2!",), ("n3!",)]),
    ],
)
def test_columns_are_selected_in_each_form_that_the_client_has(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str, select: Any, expected: list[Any]
) -> None:
    view = database.create_materialized_view(
        view_name, docs.name, select=select, where="id > 1 AND name IS DISTINCT FROM 'x'", limit=2
    )
    assert rows(view.table) == expected
    docs.delete("id = 2")
    view.refresh()
    assert rows(view.table) == expected[1:]


@pytest.mark.operation("CreateMaterializedView", "RefreshMaterializedView", client="remote")
def test_a_view_is_made_from_a_view(database: RemoteDBConnection, docs: RemoteTable, view_name: str) -> None:
    lower = database.create_materialized_view(view_name, docs.name, select=["id", "x"], where="id > 1")
    upper = database.create_materialized_view(new_name("upper"), view_name, select={"next": "x + 1"})
    assert rows(upper.table) == [(3.0,), (4.0,)]
    docs.add(numbers(4, 1))
    assert upper.refresh().mode == "no_op"
    lower.refresh()
    assert (upper.refresh().rows_written, rows(upper.table)) == (1, [(3.0,), (4.0,), (5.0,)])
    database.drop_materialized_view(upper.name)


def test_a_view_outlives_its_source_if_forced_but_is_not_refreshed(
    database: RemoteDBConnection, http: httpx.Client, docs: RemoteTable, view_name: str
) -> None:
    source = database.create_table(new_name("docs"), numbers())
    view = database.create_materialized_view(view_name, source.name, select=["id"])
    with pytest.raises(HttpError, match=f"1 object depends on it: .*{view_name}"):
        database.drop_table(source.name)
    http.post(f"/v1/table/{source.name}/drop", params={"force": "true"}).raise_for_status()
    assert rows(database.open_materialized_view(view_name).table) == [(1,), (2,), (3,)]
    with pytest.raises((HttpError, JobFailedError, ValueError), match=source.name):
        view.refresh()


@pytest.mark.operation("AlterTableDropColumns", client="remote")
def test_a_column_that_a_view_reads_is_dropped_only_if_told_so(
    database: RemoteDBConnection,
    server: RunningServer,
    http: httpx.Client,
    docs: RemoteTable,
    view_name: str,
) -> None:
    database.create_materialized_view(view_name, docs.name, select=[("twice", "x * 2")], with_no_data=True)
    # The client repeats column changes that are answered with 409, and then says why in the cause.
    retries = {"retry_config": {"retries": 1, "backoff_factor": 0.0, "backoff_jitter": 0.0}}
    hasty = lancedb.connect("db://x", api_key="k", host_override=server.url, client_config=retries)
    with pytest.raises(RetryError) as refused:
        hasty.open_table(docs.name).drop_columns(["x"])
    said = str(refused.value.__cause__)
    assert f"Column 'x' of {docs.name} cannot be dropped: 1 object depends on it: {view_name}." in said
    docs.drop_columns(["name"])
    path, columns = f"/v1/table/{docs.name}/drop_columns", {"columns": ["x"]}
    check_refusal(http.post(path, json=columns), 409, 19)
    both = http.post(path, params={"cascade": "true"}, json={**columns, "force": True})
    check_refusal(both, 400, 13, "force")
    http.post(path, json={**columns, "force": True}).raise_for_status()
    assert (docs.schema.names, view_name in database.list_materialized_views()) == (["id"], True)


def test_a_view_goes_with_a_column_that_it_reads(
    database: RemoteDBConnection, http: httpx.Client, docs: RemoteTable, view_name: str
) -> None:
    database.create_view(view_name, f"SELECT id, x FROM {docs.name}")
    path = f"/v1/table/{docs.name}/drop_columns"
    check_refusal(http.post(path, json={"columns": ["x"]}), 409, 19)
    http.post(path, params={"cascade": "true"}, json={"columns": ["x"]}).raise_for_status()
    assert (docs.schema.names, view_name in database.list_views()) == (["id", "name"], False)


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


@pytest.mark.operation("CreateMaterializedView", "RefreshMaterializedView", client="remote")
def test_a_view_of_totals_follows_its_source(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    view = database.create_materialized_view(
        view_name, docs.name, select={"n": "count(*)", "total": "sum(x)"}, where="id > 1"
    )
    assert rows(view.table) == [(2, 5.0)]
    docs.add(numbers(4, 1))
    assert view.refresh().rows_written == 1
    assert rows(view.table) == [(3, 9.0)]
    assert "count(*)" in view.definition.query


@pytest.mark.operation("CreateMaterializedView", "RefreshMaterializedView", client="remote")
def test_a_view_of_groups_is_opened_and_refreshed(
    http: httpx.Client, database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    statement = f"SELECT name, sum(x) AS total FROM {docs.name} WHERE id > 1 GROUP BY name"
    body = {"query": statement, "with_no_data": True}
    answer = http.post(f"/v1/materialized_view/{view_name}/create", json=body)
    assert (answer.status_code, answer.json()) == (201, {"version": 1})
    view = database.open_materialized_view(view_name)
    assert view.definition.query == statement
    view.refresh()
    assert rows(view.table) == [("n2", 2.0), ("n3", 3.0)]
    docs.add(numbers(3, 1))
    docs.delete("id = 2")
    view.refresh()
    assert rows(view.table) == [("n3", 6.0)]


@pytest.mark.operation("CreateMaterializedView", client="remote")
def test_a_view_of_several_tables_is_read_and_dropped(
    http: httpx.Client, database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    """The client has no grammar for such a statement, and cannot show it; the rest it can."""
    other = database.create_table(new_name("other"), numbers(2, 2))
    statement = f"SELECT a.id, a.x + b.x AS total FROM {docs.name} AS a JOIN {other.name} AS b ON a.id = b.id"
    made = http.post(f"/v1/materialized_view/{view_name}/create", json={"query": statement})
    assert made.status_code == 202, made.text
    ended(http, made.json()["job_id"])
    assert rows(database.open_table(view_name)) == [(2, 4.0), (3, 6.0)]
    other.delete("id = 2")
    ended(http, http.post(f"/v1/materialized_view/{view_name}/refresh", json={}).json()["job_id"])
    assert rows(database.open_table(view_name)) == [(3, 6.0)]
    told = http.post(f"/v1/materialized_view/{view_name}/describe", json={}).json()
    assert (told["query"], told["source_table"], told["projections"]) == (statement, docs.name, [])
    assert view_name in database.list_materialized_views()
    database.drop_materialized_view(view_name)
    assert view_name not in database.list_materialized_views()
    database.drop_table(other.name)


def test_what_no_view_can_be_made_from_is_named(
    database: RemoteDBConnection, docs: RemoteTable, view_name: str
) -> None:
    with pytest.raises(HttpError, match=r"406 .*vector_dedup\(\) is not supported"):
        database.create_materialized_view(
            view_name, vector_dedup(docs.name, column="x", distance_threshold=1.0)
        )
    with pytest.raises(HttpError, match="already exists"):
        database.create_materialized_view(docs.name, docs.name)
    with pytest.raises(HttpError, match=r"404 .*nowhere does not exist"):
        database.create_materialized_view(view_name, "nowhere")
    assert view_name not in database.list_materialized_views()


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
        ("SELECT id FROM (SELECT id FROM {0})", 406, 0, "subquery"),
        ("SELECT *, id AS i FROM {0}", 406, 0, "beside other columns"),
        ("SELECT id + 1 FROM {0}", 400, 13, "needs a name"),
        ("SELECT id, id FROM {0}", 400, 13, "two columns"),
        ("SELECT id FROM {0} LIMIT many", 400, 13, "whole number"),
        ("SELECT nowhere FROM {0}", 400, 13, "nowhere"),
        ("SELECT id FROM {0} WHERE nowhere = 1", 400, 13, "nowhere"),
        ("SELECT id FROM {0} WHERE", 400, 13, "WHERE"),
        ("SELECT id FROM {0}; DROP TABLE {0}", 400, 13, ""),
        ("DELETE FROM {0}", 400, 13, ""),
        ('SELECT "id FROM {0}', 400, 13, "cannot be read"),
        ("SELECT id FROM {0} -- all", 400, 13, "comment"),
    ],
)
def test_a_plain_view_that_cannot_be_is_refused(
    http: httpx.Client, docs: RemoteTable, statement: str, status: int, code: int, problem: str
) -> None:
    answer = http.post(f"/v1/view/{new_name('v')}/create", json={"query": statement.format(docs.name)})
    check_refusal(answer, status, code, "query")
    assert problem in answer.json()["error"]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("SELECT id FROM {0} JOIN {0} AS b", ""),
        ("SELECT count(*) FROM {0}", ""),
        ("SELECT id, count(*) AS n FROM {0} GROUP BY id LIMIT 2", "ORDER BY"),
        ("SELECT id, first(x) AS x FROM {0} GROUP BY id", "order of the rows"),
        ("SELECT id, rand() AS r, count(*) AS n FROM {0} GROUP BY id", "rand()"),
        ("SELECT id + 1 FROM {0}", "needs a name"),
        ("SELECT id, id FROM {0}", "two columns"),
        ("SELECT id FROM {0} LIMIT many", "whole number"),
        ("SELECT nowhere FROM {0}", "nowhere"),
        ("SELECT nowhere, count(*) AS n FROM {0} GROUP BY nowhere", "nowhere"),
        ("SELECT id FROM {0} WHERE nowhere = 1", "nowhere"),
        ("SELECT id FROM {0} WHERE", "WHERE"),
        ("SELECT id FROM {0}; DROP TABLE {0}", "one query"),
        ("SELECT 1 AS one", "no table"),
        ("DELETE FROM {0}", "query"),
        ('SELECT "id FROM {0}', "cannot be read"),
    ],
)
def test_a_materialized_view_that_cannot_be_is_refused(
    http: httpx.Client, docs: RemoteTable, statement: str, problem: str
) -> None:
    body = {"query": statement.format(docs.name)}
    answer = http.post(f"/v1/materialized_view/{new_name('v')}/create", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, 13), answer.text
    assert answer.json()["error"].startswith("query")
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
    with pytest.raises(HttpError, match="parentheses"):
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
