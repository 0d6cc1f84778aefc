"""Definitions of views in every form: what is kept of them, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import lance
import pyarrow as pa
import pytest

from tests.protocol.view_wire import (
    COUNTS,
    ID,
    KEY,
    LENGTH,
    SOURCE_ROW,
    WORDS,
    function_text,
    query,
    schema_text,
    spec,
    table_view,
    view,
)
from tests.protocol.wire import TableOnWire, check_refusal, some_rows, stream

SPACE = "defined"
T = f"{SPACE}.t"
SCAN = query(SPACE, "t")
GROUPED = f"SELECT text, count(*) AS n FROM {T} GROUP BY text"
COUNTED = (pa.field("text", pa.string()), pa.field("n", pa.int64()))
SQL: dict[str, Any] = {"output_schema": None}


def functions(*entries: dict[str, Any], **changes: Any) -> str:
    return query(SPACE, "t", functions=list(entries), **changes)


def function(**changes: Any) -> dict[str, Any]:
    return {"name": "size", "index": 1, "envelope": function_text(LENGTH), "inputs": ["text"]} | changes


@pytest.fixture(scope="module")
def t(http: httpx.Client) -> TableOnWire:
    assert http.post(f"/v1/namespace/{SPACE}/create", json={}).status_code == 200
    table = TableOnWire(http, SPACE, "t")
    table.create(some_rows())
    other = http.post(f"/v1/table/{SPACE}$other/create", content=stream(some_rows()))
    assert other.status_code == 200
    stored = http.post(f"/v1/view/{SPACE}$stored/create", json={"query": f"SELECT id FROM {T}"})
    assert stored.status_code == 200
    return table


@pytest.fixture
def untouched(t: TableOnWire) -> Iterator[TableOnWire]:
    """For requests that leave no table and no function behind."""

    def everything() -> Any:
        names = t.http.get(f"/v1/namespace/{SPACE}/table/list").json()
        return t.state(), names, t.http.get("/api/v1/functions").json()

    before = everything()
    yield t
    assert everything() == before


@pytest.fixture
def name(t: TableOnWire, request: pytest.FixtureRequest) -> Iterator[str]:
    """A view of that name is dropped after the test."""
    yield "made"
    t.http.post(f"/v1/materialized_view/{SPACE}$made/drop", json={"cascade": True})


def create(table: TableOnWire, name: str, body: Any) -> httpx.Response:
    return table.http.post(f"/v1/materialized_view/{SPACE}${name}/create", json=body)


def made(table: TableOnWire, name: str, body: Any) -> pa.Schema:
    """The columns of a view that was created, as a reader sees them."""
    answer = create(table, name, body)
    assert (answer.status_code, answer.json()) == (201, {"version": 1}), answer.text
    rows = TableOnWire(table.http, SPACE, name).post("query", {"k": 1, "vector": []})
    return pa.ipc.open_file(rows.content).schema


def stored_names(table: TableOnWire, name: str) -> list[str]:
    """The columns in storage, as a reader by location sees them."""
    location = TableOnWire(table.http, SPACE, name).asked("describe")["location"]
    return list(lance.dataset(location).schema.names)


def described(table: TableOnWire, name: str) -> Any:
    answer = table.http.post(f"/v1/materialized_view/{SPACE}${name}/describe", json={})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.operation("CreateMaterializedView", client="http")
@pytest.mark.parametrize("output", [None, schema_text(*COUNTED), schema_text(KEY, *COUNTED)])
def test_a_statement_says_its_columns_itself(t: TableOnWire, name: str, output: str | None) -> None:
    schema = made(t, name, view(GROUPED, output_schema=output))
    assert schema.names == ["text", "n"]
    assert stored_names(t, name) == ["__key", "text", "n"]
    told = described(t, name)
    assert (told["query"], told["source_table"], told["source_namespace"]) == (GROUPED, "t", [SPACE])
    assert (told["projections"], told["filter"], told["limit"]) == ([], None, None)


@pytest.mark.operation("CreateMaterializedView", client="http")
def test_a_statement_has_several_sources(t: TableOnWire, name: str) -> None:
    text = f"SELECT a.id, b.text AS other FROM {T} AS a JOIN {SPACE}.other AS b ON a.id = b.id"
    assert made(t, name, view(text, **SQL)).names == ["id", "other"]
    assert t.http.get(f"/v1/namespace/{SPACE}/materialized_view/list").json() == {"views": [name]}


@pytest.mark.operation("CreateMaterializedView", client="http")
def test_a_plain_scan_in_sql_is_a_scan(t: TableOnWire, name: str) -> None:
    text = f"/* mine */ SELECT id, text AS label FROM {T} WHERE id > 1 LIMIT 2"
    assert made(t, name, view(text, **SQL)).names == ["id", "label"]
    assert described(t, name)["filter"] == "id > 1"


@pytest.mark.operation("CreateMaterializedView", client="http")
@pytest.mark.parametrize("text", ["opaque", "  ", '{"format": "other/1", "joins": []}', "\u00e4\n\ttext"])
def test_a_definition_in_another_form_is_kept_as_it_is(t: TableOnWire, name: str, text: str) -> None:
    assert made(t, name, view(text)).names == ["id"]
    assert stored_names(t, name) == ["__source_row_id", "id"]
    assert described(t, name)["query"] == text


@pytest.mark.operation("CreateMaterializedView", client="http")
def test_a_query_view_has_columns_of_functions(t: TableOnWire, name: str) -> None:
    output = schema_text(SOURCE_ROW, ID, pa.field("size", pa.int64()))
    schema = made(t, name, view(functions(function(), limit=2, offset=1), output_schema=output))
    assert schema.names == ["id", "size"]


@pytest.mark.operation("CreateMaterializedView", client="http")
@pytest.mark.parametrize("output", [tuple(COUNTS.output), (KEY, *COUNTS.output)])
def test_a_partitioned_view_has_a_key(t: TableOnWire, name: str, output: tuple[pa.Field, ...]) -> None:
    assert made(t, name, table_view(SCAN, *output, partition_by="text")).names == ["text", "n"]
    assert stored_names(t, name) == ["__key", "text", "n"]


@pytest.mark.operation("CreateMaterializedView", client="http")
def test_a_table_function_without_parts_has_its_own_columns_only(t: TableOnWire, name: str) -> None:
    assert made(t, name, table_view(SCAN, error_handling="skip")).names == ["text", "n"]


@pytest.mark.operation("CreateMaterializedView", client="http")
def test_a_view_is_made_from_a_view(t: TableOnWire, name: str) -> None:
    made(t, name, view(SCAN))
    try:
        all_columns = view(query(SPACE, name, columns=None))
        assert made(t, "second", all_columns).names == ["id"]
        counted = view(f"SELECT id, count(*) AS n FROM {SPACE}.second GROUP BY id", **SQL)
        assert made(t, "third", counted).names == ["id", "n"]
    finally:
        for later in ("third", "second"):
            t.http.post(f"/v1/materialized_view/{SPACE}${later}/drop", json={})


WORD = pa.field("word", pa.string())
CHILD = pa.field("__child_index", pa.int32(), nullable=False)
CHUNKS: dict[str, Any] = {"kind": "chunker", "udtf_spec": spec(WORDS, "chunker", input_columns=["text"])}


@pytest.mark.operation("CreateMaterializedView", "DescribeTable", "QueryTable", client="http")
@pytest.mark.parametrize(
    ("body", "shown", "internal"),
    [
        (view(f"SELECT id FROM {T}"), [ID], [SOURCE_ROW]),
        (view(SCAN), [ID], [SOURCE_ROW]),
        (view(SCAN, **CHUNKS), [ID, WORD], [SOURCE_ROW, CHILD]),
        (view(GROUPED), list(COUNTED), [KEY]),
        (table_view(SCAN, partition_by="text"), list(COUNTS.output), [KEY]),
    ],
    ids=["sql scan", "query", "chunker", "sql", "udtf"],
)
@pytest.mark.parametrize("form", ["without", "with", "last"])
def test_internal_columns_are_not_asked_for_and_not_shown(
    t: TableOnWire, name: str, body: Any, shown: list[pa.Field], internal: list[pa.Field], form: str
) -> None:
    given = {"without": shown, "with": [*internal, *shown], "last": [*shown, *internal]}[form]
    seen, hidden = [field.name for field in shown], [field.name for field in internal]
    assert made(t, name, body | {"output_schema": schema_text(*given)}).names == seen
    table = TableOnWire(t.http, SPACE, name)
    assert [field["name"] for field in table.asked("describe")["schema"]["fields"]] == seen
    assert stored_names(t, name) == [*hidden, *seen]
    by_name = {"k": 1, "vector": [], "columns": {"column_names": hidden}, "filter": f"{hidden[0]} >= 0"}
    assert pa.ipc.open_file(table.post("query", by_name).content).schema.names == hidden
    assert table.asked("count_rows", {"predicate": f"{hidden[0]} >= 0"}) == 0


@pytest.mark.operation("CreateMaterializedView", client="http")
def test_an_internal_column_of_another_view_is_shown_where_it_was_selected(t: TableOnWire, name: str) -> None:
    made(t, name, view(SCAN, **CHUNKS, output_schema=schema_text(ID, WORD)))
    try:
        text = f"SELECT word, __child_index FROM {SPACE}.{name}"
        assert made(t, "second", view(text, **SQL)).names == ["word", "__child_index"]
        stored = {"query": f"SELECT * FROM {SPACE}.{name}"}
        assert t.http.post(f"/v1/view/{SPACE}$third/create", json=stored).status_code == 200
        rows = TableOnWire(t.http, SPACE, "third").post("query", {"k": 1, "vector": []})
        assert pa.ipc.open_file(rows.content).schema.names == ["id", "word"]
    finally:
        t.http.post(f"/v1/materialized_view/{SPACE}$second/drop", json={})
        t.http.post(f"/v1/view/{SPACE}$third/drop", json={})


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        # Sources and columns that are not there.
        (view(query(SPACE, "nowhere")), 404, 4, ""),
        (view(query("nowhere", "t")), 404, 1, ""),
        (view(f"SELECT count(*) AS n FROM {SPACE}.nowhere", **SQL), 404, 4, ""),
        (view(f"SELECT a.id FROM {T} AS a JOIN nowhere.t AS b ON a.id = b.id", **SQL), 404, 1, ""),
        (view(f"SELECT nowhere, count(*) AS n FROM {T} GROUP BY nowhere", **SQL), 400, 13, "source_query"),
        (view(query(SPACE, "t", columns={"id": "nowhere"})), 400, 13, "source_query"),
        (view(functions(function(inputs=["nowhere"]))), 404, 12, ""),
        (table_view(SCAN, partition_by="nowhere"), 404, 12, ""),
        (table_view(SCAN, partition_by_indexed_column="nowhere"), 404, 12, ""),
        (table_view(SCAN, input_columns=["nowhere"]), 404, 12, ""),
        # Columns that are others than said.
        (view(SCAN, output_schema=schema_text(SOURCE_ROW)), 400, 20, ""),
        (view(SCAN, output_schema=schema_text(SOURCE_ROW, SOURCE_ROW, ID)), 400, 20, ""),
        (view(SCAN, output_schema=schema_text(ID, CHILD)), 400, 20, ""),
        (view(SCAN, output_schema=schema_text(pa.field("__source_row_id", pa.string()), ID)), 400, 20, ""),
        (view(SCAN, output_schema=schema_text(SOURCE_ROW, pa.field("id", pa.string()))), 400, 20, ""),
        (view(GROUPED, output_schema=schema_text(ID)), 400, 20, ""),
        (view(GROUPED, output_schema=schema_text(pa.field("text", pa.int64()), ID)), 400, 20, ""),
        (table_view(SCAN, ID), 400, 20, ""),
        (table_view(SCAN, ID, partition_by="text"), 400, 20, ""),
        (view(query(SPACE, "t", columns={"__source_row_id": "id"})), 400, 20, ""),
        (view(functions(function(name="id"))), 400, 20, ""),
        # What has another answer each time.
        (view(query(SPACE, "t", filter="random() < 0.5")), 400, 13, "source_query.filter"),
        (view(query(SPACE, "t", columns={"id": "now()"})), 400, 13, "source_query.columns.id"),
        (view(query(SPACE, "t", filter="text < current_date")), 400, 13, "source_query.filter"),
        (view(f"SELECT id, uuid() AS u FROM {T}", **SQL), 400, 13, "source_query.columns.u"),
        (
            view(f"SELECT id, count(*) AS n FROM {T} WHERE rand() < 1 GROUP BY id", **SQL),
            400,
            13,
            "source_query",
        ),
        # Windows where there are none.
        (table_view(query(SPACE, "t", limit=2), partition_by="text"), 400, 13, "udtf_spec.partition_by"),
        (table_view(query(SPACE, "t", offset=2), partition_by="text"), 400, 13, "udtf_spec.partition_by"),
        (view(f"{GROUPED} LIMIT 2", **SQL), 400, 13, "source_query"),
        (view(query(SPACE, "t", limit=-1)), 400, 13, "source_query.limit"),
        # Partitions.
        (table_view(SCAN, partition_by="vector"), 400, 13, "udtf_spec.partition_by"),
        (
            table_view(SCAN, partition_by="text", partition_by_indexed_column="vector"),
            400,
            13,
            "udtf_spec.partition_by_indexed_column",
        ),
        (
            view(SCAN, kind="chunker", udtf_spec=spec(WORDS, "chunker", partition_by="text")),
            400,
            13,
            "udtf_spec.partition_by",
        ),
        # Functions.
        (view(SCAN, udtf_spec=spec(COUNTS, "udtf")), 400, 13, "udtf_spec"),
        (view(SCAN, kind="udtf"), 400, 13, "udtf_spec"),
        (view(SCAN, kind="udtf", udtf_spec=spec(WORDS, "udtf")), 400, 13, "udtf_spec.udtf"),
        (view(SCAN, kind="chunker", udtf_spec=spec(COUNTS, "chunker")), 400, 13, "udtf_spec.udtf"),
        (view(SCAN, kind="udtf", udtf_spec=spec(COUNTS, "chunker")), 400, 13, "udtf_spec.kind"),
        (table_view(SCAN, udtf_sha="0" * 64), 400, 13, "udtf_spec.udtf_sha"),
        (table_view(SCAN, num_gpus=1), 406, 0, "udtf_spec.num_gpus"),
        (table_view(SCAN, num_cpus=-2), 400, 13, "udtf_spec.num_cpus"),
        (table_view(SCAN, memory="much"), 400, 13, "udtf_spec.memory"),
        (table_view(SCAN, error_handling='{"attempts": 0}'), 400, 13, "udtf_spec.error_handling.attempts"),
        (table_view(SCAN, manifest="nowhere"), 400, 13, "udtf_spec.manifest"),
        (
            view(functions(function(envelope=function_text(WORDS)))),
            400,
            13,
            "source_query.functions[0].envelope",
        ),
        (
            view(functions(function(inputs=["id", "text"]))),
            400,
            13,
            "source_query.functions[0].envelope",
        ),
        (
            view(functions(function()), kind="udtf", udtf_spec=spec(COUNTS, "udtf")),
            400,
            13,
            "source_query.functions[0].envelope",
        ),
        # Statements that are none, or of which no view can be made.
        (view("SELECT 1 AS one", **SQL), 400, 13, "source_query"),
        (view(f"SELECT id FROM {T}; DROP TABLE {T}", **SQL), 400, 13, "source_query"),
        (view(f"SELECT id, FROM WHERE {T}", **SQL), 400, 13, "source_query"),
        (view(GROUPED, kind="udtf", udtf_spec=spec(COUNTS, "udtf")), 400, 13, "source_query"),
        # What is only kept.
        (view("opaque", output_schema=None), 400, 13, "output_schema"),
        (view("opaque", with_no_data=False), 400, 13, "with_no_data"),
        (view("opaque", auto_refresh=True), 400, 13, "auto_refresh"),
        (view("opaque", kind="udtf"), 400, 13, "udtf_spec"),
        # What is said beside the definition.
        (view(SCAN, policy="sometimes"), 400, 13, "policy"),
        (view(SCAN, auto_refresh="yes"), 400, 13, "auto_refresh"),
        (view(SCAN, on_error={"action": "explode"}), 400, 13, "on_error.action"),
        (view(SCAN, manifest='{"conda": {"a": 1}}'), 400, 13, "manifest.conda"),
        ({"query": f"{GROUPED} LIMIT 2"}, 400, 13, "query"),
        ({"query": f"SELECT rand() AS r, count(*) AS n FROM {T}"}, 400, 13, "query"),
        ({"query": f"SELECT id FROM {T} WHERE rand() < 1"}, 400, 13, "query.filter"),
    ],
)
def test_a_definition_that_cannot_be_is_refused(
    untouched: TableOnWire, body: Any, status: int, code: int, field: str
) -> None:
    check_refusal(create(untouched, "v", body), status, code, field)


def test_a_column_without_an_index_parts_nothing(untouched: TableOnWire) -> None:
    answer = create(untouched, "v", table_view(SCAN, partition_by_indexed_column="vector"))
    assert (answer.status_code, answer.json()["code"]) == (400, 13), answer.text
    assert "vector" in answer.json()["error"]


@pytest.mark.parametrize("taken", ["t", "stored"])
@pytest.mark.parametrize("body", [view(SCAN), view(GROUPED, **SQL), view("opaque")])
def test_a_name_is_given_once(untouched: TableOnWire, taken: str, body: dict[str, Any]) -> None:
    check_refusal(create(untouched, taken, body), 409, 5)


def test_a_name_that_a_view_has_is_not_given_again(t: TableOnWire, name: str) -> None:
    made(t, name, view(SCAN))
    check_refusal(create(t, name, view(GROUPED, **SQL)), 409, 5)


@pytest.mark.parametrize(
    "body",
    [
        view(query(SPACE, "v")),
        view(f"SELECT id, count(*) AS n FROM {SPACE}.v GROUP BY id", **SQL),
        view(f"SELECT a.id FROM {T} AS a JOIN {SPACE}.v AS b ON a.id = b.id", **SQL),
        {"query": f"SELECT id FROM {SPACE}.v"},
    ],
)
def test_a_view_is_not_made_from_itself(untouched: TableOnWire, body: dict[str, Any]) -> None:
    answer = create(untouched, "v", body)
    check_refusal(answer, 400, 13, "query" if "query" in body else "source_query")
    assert "cyclic definition" in answer.json()["error"]
    assert "from itself" in answer.json()["error"]


def test_a_view_is_not_made_from_one_that_was_made_from_it(t: TableOnWire, name: str) -> None:
    made(t, "first", view(SCAN))
    made(t, name, view(query(SPACE, "first")))
    t.http.post(f"/v1/materialized_view/{SPACE}$first/drop", json={"force": True})
    answer = create(t, "first", view(query(SPACE, name)))
    check_refusal(answer, 400, 13, "source_query")
    assert f"cyclic definition: {SPACE}.{name} is made from {SPACE}.first" in answer.json()["error"]


def test_a_stored_query_is_no_source(untouched: TableOnWire) -> None:
    answer = create(untouched, "v", view(query(SPACE, "stored")))
    check_refusal(answer, 400, 13, "source_query")
    assert f"{SPACE}.stored is a view that is run on every read" in answer.json()["error"]


def test_another_envelope_is_another_function(t: TableOnWire, name: str) -> None:
    """What is refused after the function was read leaves it unknown."""
    unknown = replace(COUNTS, digest="sha256:" + "f" * 64)
    body = table_view(SCAN, ID) | {"udtf_spec": spec(unknown, "udtf")}
    check_refusal(create(t, name, body), 400, 20)
    listed = t.http.get("/api/v1/functions").text
    assert unknown.digest not in listed
