"""Computed columns, views and their jobs that cannot be: refused by field, and nothing is remembered."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.protocol.view_wire import LENGTH, WORDS
from tests.protocol.wire import TableOnWire, check_refusal, some_rows
from tidemill.catalog.model.functions import Function, encode_envelope

BROKEN: list[tuple[str, Any]] = [
    ("format", "other/1"),
    ("format", None),
    ("name", ""),
    ("name", 5),
    ("digest", "sha256:zz"),
    ("digest", "md5:" + "a" * 32),
    ("digest", None),
    ("kind", "magic"),
    ("kind", 7),
    ("parameters", "text"),
    ("parameters", [1]),
    ("parameters", None),
    ("output", "%%%"),
    ("output", base64.b64encode(b"no schema").decode()),
    ("output", base64.b64encode(pa.schema([pa.field("x", pa.int64())]).serialize().to_pybytes()).decode()),
    ("payload", "not base64!"),
    ("payload", None),
    ("python", None),
]


def encoded(envelope: bytes) -> str:
    return base64.b64encode(envelope).decode()


def broken(function: Function, field: str, value: Any) -> bytes:
    return json.dumps(json.loads(encode_envelope(function)) | {field: value}).encode()


def column(name: str = "size", **changes: Any) -> dict[str, Any]:
    """The body of add_columns with one computed column."""
    virtual = {"input_columns": ["text"], "udf": encoded(encode_envelope(LENGTH)), "udf_backend": "tidemill"}
    return {"new_columns": [{"name": name, "virtual_column": virtual | changes}]}


def query(**changes: Any) -> str:
    body = {"format": "tidemill.query/1", "source": ["derived", "t"], "columns": {"id": "id"}, "filter": None}
    return json.dumps(body | changes)


def view(**changes: Any) -> dict[str, Any]:
    """The body of a plain view's creation."""
    schema = pa.schema([pa.field("__source_row_id", pa.int64(), nullable=False), pa.field("id", pa.int64())])
    body = {
        "kind": "query",
        "source_query": query(),
        "output_schema": encoded(schema.serialize().to_pybytes()),
        "udtf_spec": None,
    }
    return body | changes


def chunker_view(udtf: str | None = None, **changes: Any) -> dict[str, Any]:
    text = encoded(encode_envelope(WORDS)) if udtf is None else udtf
    spec = {"kind": "chunker", "udtf": text, "udtf_sha": hashlib.sha256(text.encode()).hexdigest()}
    return view(kind="chunker", udtf_spec={**spec, "input_columns": ["text"], **changes})


@pytest.fixture(scope="module")
def derived(http: httpx.Client) -> TableOnWire:
    """A table with one computed column that nobody has filled."""
    table = TableOnWire(http, "derived", "t")
    assert http.post("/v1/namespace/derived/create", json={}).status_code == 200
    table.create(some_rows())
    table.asked("add_columns", column("declared"))
    return table


@pytest.fixture
def untouched(derived: TableOnWire) -> Iterator[TableOnWire]:
    """The same, for requests that leave no version, table, function or job behind."""

    def everything() -> Any:
        names = derived.http.get("/v1/namespace/derived/table/list").json()
        functions = derived.http.get("/api/v1/functions").json()
        jobs = derived.http.get("/api/v1/jobs").json()["jobs"]
        return derived.state(), names, functions, [job for job in jobs if job["table"] == derived.levels]

    before = everything()
    yield derived
    assert everything() == before


def make_view(table: TableOnWire, body: Any, name: str = "derived$v") -> httpx.Response:
    return table.http.post(f"/v1/materialized_view/{name}/create", json=body)


@pytest.mark.parametrize(("field", "value"), BROKEN)
def test_a_broken_envelope_makes_no_column(untouched: TableOnWire, field: str, value: Any) -> None:
    answer = untouched.post("add_columns", column(udf=encoded(broken(LENGTH, field, value))))
    check_refusal(answer, 400, 13)
    name = "new_columns[0].virtual_column.udf"
    assert answer.json()["error"].startswith(name if field == "format" else f"{name}.{field}: ")


@pytest.mark.parametrize(("field", "value"), BROKEN)
def test_a_broken_envelope_is_not_registered(untouched: TableOnWire, field: str, value: Any) -> None:
    answer = untouched.http.post("/api/v1/functions", content=broken(LENGTH, field, value))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_input")
    wanted = "body: " if field == "format" else f"body.{field}: "
    assert answer.json()["error"]["message"].startswith(wanted)


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({}, 400, 13, "new_columns"),
        ({"new_columns": []}, 400, 13, "new_columns"),
        ({"new_columns": {}}, 400, 13, "new_columns"),
        ({"new_columns": ["size"]}, 400, 13, "new_columns"),
        ({"new_columns": [{"name": "size"}]}, 400, 13, "new_columns[0].virtual_column"),
        ({"new_columns": [{"virtual_column": {}}]}, 400, 13, "new_columns[0].name"),
        ({"new_columns": column()["new_columns"] * 2}, 400, 13, "new_columns"),
        (column("id"), 400, 13, "name"),
        (column("declared"), 400, 13, "name"),
        (column(udf="not base64!"), 400, 13, "new_columns[0].virtual_column.udf"),
        (column(udf=None), 400, 13, "new_columns[0].virtual_column.udf"),
        (column(udf=encoded(encode_envelope(WORDS))), 400, 13, "new_columns[0].virtual_column.udf"),
        (column(udf_backend="docker"), 406, 0, "new_columns[0].virtual_column.udf_backend"),
        (column(input_columns="text"), 400, 13, "new_columns[0].virtual_column.input_columns"),
        (column(input_columns=["text", "id"]), 400, 13, "virtual_column.input_columns"),
        (column(input_columns=["nowhere"]), 404, 12, ""),
        (column(auto_backfill="yes"), 400, 13, "new_columns[0].virtual_column.auto_backfill"),
        (column(manifest="m"), 400, 13, "new_columns[0].virtual_column.manifest"),
        (
            column(outputs=[{"column": "other"}]),
            400,
            13,
            "new_columns[0].virtual_column.outputs[0].column",
        ),
        (
            column(outputs=[{"column": "size", "data_type": "utf8"}]),
            400,
            13,
            "new_columns[0].virtual_column.outputs[0].data_type",
        ),
        (
            column(outputs=[{"column": "size", "struct_field": "a"}, {"column": "b", "struct_field": "b"}]),
            400,
            13,
            "new_columns[0].virtual_column.outputs[0].struct_field",
        ),
        ({**column(), "branch": "dev"}, 404, 22, ""),
    ],
)
def test_a_column_that_cannot_be_is_refused(
    untouched: TableOnWire, body: Any, status: int, code: int, field: str
) -> None:
    check_refusal(untouched.post("add_columns", body), status, code, field)


def test_a_column_of_a_missing_table_is_refused(untouched: TableOnWire) -> None:
    nowhere = TableOnWire(untouched.http, "derived", "nowhere")
    check_refusal(nowhere.post("add_columns", column()), 404, 4)


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        (view(source_query=query(source=["derived", "nowhere"])), 404, 4, ""),
        (view(source_query=query(source=["nowhere", "t"])), 404, 1, ""),
        (view(source_query=query(source=[])), 400, 13, "source_query.source"),
        (view(source_query=query(source="derived.t")), 400, 13, "source_query.source"),
        (view(source_query=query(columns={"id": "nowhere"})), 400, 13, "source_query"),
        (view(source_query=query(columns={"id": "id;"})), 400, 13, "source_query.columns.id"),
        (view(source_query=query(filter="id = 1 -- x")), 400, 13, "source_query.filter"),
        (view(source_query=query(filter="nowhere = 1")), 400, 13, "source_query"),
        (view(source_query=query(joins=[])), 400, 13, "source_query.joins"),
        (view(source_query="SELECT id FROM t"), 404, 4, ""),
        (view(source_query=None), 400, 13, "source_query"),
        (view(output_schema="%%%"), 400, 13, "output_schema"),
        (view(output_schema=None), 400, 13, "output_schema"),
        (view(output_schema=encoded(pa.schema([]).serialize().to_pybytes())), 400, 20, ""),
        (view(kind=None), 400, 13, "kind"),
        (view(kind="table"), 400, 13, "kind"),
        (view(kind="udtf"), 400, 13, "udtf_spec"),
        (view(kind="chunker"), 400, 13, "udtf_spec"),
        (view(auto_refresh="yes"), 400, 13, "auto_refresh"),
        (view(with_no_data="yes"), 400, 13, "with_no_data"),
        (chunker_view(udtf_sha="0" * 64), 400, 13, "udtf_spec.udtf_sha"),
        (chunker_view(udtf_sha=None), 400, 13, "udtf_spec.udtf_sha"),
        (chunker_view(kind="udtf"), 400, 13, "udtf_spec.kind"),
        (chunker_view(input_columns=["nowhere"]), 404, 12, ""),
        (chunker_view(input_columns=["id", "text"]), 400, 13, "udtf_spec.input_columns"),
        (chunker_view(partition_by=["id"]), 400, 13, "udtf_spec.partition_by"),
        (chunker_view(encoded(encode_envelope(LENGTH))), 400, 13, "udtf_spec.udtf"),
        (chunker_view(encoded(b"{}")), 400, 13, "udtf_spec.udtf"),
        (chunker_view("damaged"), 400, 13, "udtf_spec.udtf"),
        ({**chunker_view(), "kind": "query"}, 400, 13, "udtf_spec"),
    ],
)
def test_a_view_that_cannot_be_is_refused(
    untouched: TableOnWire, body: Any, status: int, code: int, field: str
) -> None:
    check_refusal(make_view(untouched, body), status, code, field)


def test_a_view_needs_a_free_name(untouched: TableOnWire) -> None:
    check_refusal(make_view(untouched, view(), "derived$t"), 409, 5)


def test_a_view_needs_its_namespace(untouched: TableOnWire) -> None:
    check_refusal(make_view(untouched, view(), "nowhere$v"), 404, 1)


@pytest.mark.parametrize(
    ("changes", "status", "code", "field"),
    [
        ({"column": None}, 400, 13, "column"),
        ({"column": ""}, 400, 13, "column"),
        ({"column": 5}, 400, 13, "column"),
        ({"column": "nowhere"}, 404, 12, ""),
        ({"column": "id"}, 400, 13, "column"),
        ({"surprise": 1}, 400, 13, "surprise"),
        ({"concurency": 4}, 400, 13, "concurency"),
        ({"read_version": 99}, 400, 13, "read_version"),
        ({"read_version": 0}, 400, 13, "read_version"),
        ({"read_version": "1"}, 400, 13, "read_version"),
        ({"concurrency": 0}, 400, 13, "concurrency"),
        ({"concurrency": -4}, 400, 13, "concurrency"),
        ({"concurrency": 1.5}, 400, 13, "concurrency"),
        ({"num_frags": -1}, 400, 13, "num_frags"),
        ({"commit_granularity": 0}, 400, 13, "commit_granularity"),
        ({"checkpoint_size": -100}, 400, 13, "checkpoint_size"),
        ({"min_checkpoint_size": 10, "max_checkpoint_size": 5}, 400, 13, "min_checkpoint_size"),
        (
            {"batch_checkpoint_flush_interval_seconds": -0.5},
            400,
            13,
            "batch_checkpoint_flush_interval_seconds",
        ),
        ({"min_checkpoint_size": 10, "checkpoint_size": 5}, 400, 13, "checkpoint_size"),
        ({"intra_applier_concurrency": 0}, 400, 13, "intra_applier_concurrency"),
        ({"intra_applier_concurrency": 1000}, 400, 13, "intra_applier_concurrency"),
        ({"task_size": 0}, 400, 13, "task_size"),
        ({"cluster": "nowhere"}, 400, 13, "cluster"),
        ({"manifest": "nowhere"}, 400, 13, "manifest"),
        ({"manifest": '{"conda": {"dependencies": ["a"]}}'}, 400, 13, "manifest.conda"),
        ({"on_error": "explode"}, 400, 13, "on_error"),
        ({"on_error": {"action": "skip", "attempts": 0}}, 400, 13, "on_error.attempts"),
        ({"only": "some"}, 400, 13, "only"),
        ({"only": "stale", "where": "id = 1"}, 400, 13, "only"),
        ({"where": "id = 1; DROP"}, 400, 13, "where"),
        ({"where": "nowhere = 1"}, 400, 13, "where"),
        ({"where": "(id = 1"}, 400, 13, "where"),
        ({"where": ""}, 400, 13, "where"),
        ({"branch": "dev"}, 404, 22, ""),
    ],
)
def test_a_backfill_that_cannot_be_is_refused(
    untouched: TableOnWire, changes: dict[str, Any], status: int, code: int, field: str
) -> None:
    answer = untouched.post("backfill_column", {"column": "declared", **changes})
    check_refusal(answer, status, code, field)


@pytest.mark.parametrize(("target", "code"), [("derived$t", 4), ("derived$nowhere", 4), ("nowhere$v", 1)])
def test_only_a_view_is_refreshed(untouched: TableOnWire, target: str, code: int) -> None:
    check_refusal(untouched.http.post(f"/v1/materialized_view/{target}/refresh", json={}), 404, code)


@pytest.mark.parametrize("key", ["x" * 300, ""])
def test_a_senseless_idempotency_key_is_refused(untouched: TableOnWire, key: str) -> None:
    answer = untouched.post("backfill_column", {"column": "declared"}, headers={"idempotency-key": key})
    check_refusal(answer, 400, 13, "idempotency-key")


def test_another_branch_gets_no_function_and_is_told_why(table: TableOnWire) -> None:
    assert table.post("branches/create", {"name": "dev"}).status_code == 200
    before = table.state()
    check_refusal(table.post("add_columns", {**column(), "branch": "dev"}), 400, 13, "branch")
    assert table.state() == before
