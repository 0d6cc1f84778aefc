"""Computed columns, materialized views and their jobs over the Lance protocol."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.protocols.envelopes import (
    LENGTH,
    WORDS,
    encoded,
    source_query,
    udtf_spec,
    view,
    virtual_column,
)
from tests.unit.protocols.stand import Stand
from tests.unit.protocols.stand_jobs import some_job
from tidemill.catalog.model.identifiers import table_ident
from tidemill.jobs.model.derived import ColumnOutput, SourceQuery, ViewKind
from tidemill.jobs.model.jobs import BackfillRequest, Failure, RefreshRequest
from tidemill.jobs.model.state import JobState
from tidemill.jobs.operations.columns import ColumnDeclaration

PAGES = table_ident(("docs", "pages"))


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_a_column_is_declared_with_its_function(stand: Stand) -> None:
    answer = stand.post("/v1/table/docs$pages/add_columns", json=virtual_column())
    assert (answer.status_code, answer.json()) == (200, {"version": 2})
    assert stand.columns.declared == [ColumnDeclaration("size", LENGTH, ("text",))]


@pytest.mark.parametrize(
    "data_type", ["double", {"type": "float64"}, {"type": "fixed_size_list", "fields": [], "length": 4}]
)
def test_an_output_type_that_is_not_the_functions_is_refused(stand: Stand, data_type: Any) -> None:
    outputs = [{"column": "size", "struct_field": "value", "data_type": data_type, "nullable": True}]
    answer = stand.post("/v1/table/docs$pages/add_columns", json=virtual_column(outputs=outputs))
    assert answer.status_code == 400
    assert "data_type" in answer.json()["error"]
    assert stand.columns.declared == []


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "new_columns"),
        ({"new_columns": [{"name": "a"}]}, 400, "new_columns[0].virtual_column"),
        (
            {"new_columns": [{"name": "a", "expression": "1", "computed": "2"}]},
            400,
            "new_columns[0].expression",
        ),
        (virtual_column(udf_backend="SomethingElse"), 406, "new_columns[0].virtual_column.udf_backend"),
        (virtual_column(udf="%%%"), 400, "new_columns[0].virtual_column.udf"),
        (virtual_column(udf="e30="), 400, "new_columns[0].virtual_column.udf"),
        (virtual_column(WORDS), 400, "new_columns[0].virtual_column.udf"),
        (virtual_column(outputs=[{"column": "b"}]), 400, "new_columns[0].virtual_column.outputs[0].column"),
        (virtual_column(auto_backfill="yes"), 400, "new_columns[0].virtual_column.auto_backfill"),
        (
            virtual_column(outputs=[{"column": "size", "struct_field": "a"}, {"column": "b"}]),
            400,
            "new_columns[0].virtual_column.outputs[0].struct_field",
        ),
        (virtual_column(manifest="{}"), 400, "new_columns[0].virtual_column.manifest"),
        (virtual_column(input_columns="text"), 400, "new_columns[0].virtual_column.input_columns"),
    ],
)
def test_columns_that_cannot_be_declared_are_refused_by_field(
    stand: Stand, body: dict[str, Any], status: int, field: str
) -> None:
    answer = stand.post("/v1/table/docs$pages/add_columns", json=body)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(f"{field}: ")


@pytest.mark.parametrize("fields", [{"size": "width", "label": "text"}, {"size": "width"}])
def test_fields_of_a_struct_go_into_columns_of_their_own(stand: Stand, fields: dict[str, str]) -> None:
    made = pa.struct([pa.field("width", pa.int64()), pa.field("text", pa.string())])
    function = replace(LENGTH, output=pa.schema([pa.field("value", made)]))
    outputs = [{"column": column, "struct_field": field} for column, field in fields.items()]
    answer = stand.post("/v1/table/docs$pages/add_columns", json=virtual_column(function, outputs=outputs))
    assert answer.status_code == 200, answer.text
    (declared,) = stand.columns.declared
    assert declared.siblings == tuple(ColumnOutput(*pair) for pair in fields.items())


def test_a_field_of_another_type_or_name_is_refused(stand: Stand) -> None:
    made = pa.struct([pa.field("width", pa.int64()), pa.field("text", pa.string())])
    function = replace(LENGTH, output=pa.schema([pa.field("value", made)]))
    first = {"column": "size", "struct_field": "width"}
    for second, key in [
        ({"column": "b", "struct_field": "text", "data_type": "int64"}, "data_type"),
        ({"column": "b", "struct_field": "depth"}, "struct_field"),
        ({"column": "b"}, "struct_field"),
    ]:
        body = virtual_column(function, outputs=[first, second])
        answer = stand.post("/v1/table/docs$pages/add_columns", json=body)
        assert answer.status_code == 400
        assert answer.json()["error"].startswith(f"new_columns[0].virtual_column.outputs[1].{key}: ")
    assert stand.columns.declared == []


def test_a_column_may_fill_itself(stand: Stand) -> None:
    assert stand.post("/v1/table/t/add_columns", json=virtual_column(auto_backfill=True)).status_code == 200
    assert stand.post("/v1/table/t/add_columns", json=virtual_column(auto_backfill=False)).status_code == 200
    assert [declared.has_auto_backfill for declared in stand.columns.declared] == [True, False]


def test_a_query_view_is_created(stand: Stand) -> None:
    answer = stand.post("/v1/materialized_view/docs$words/create", json=view("query", udtf_spec=None))
    assert (answer.status_code, answer.json()) == (201, {"version": 1})
    (created,) = stand.views.created
    assert created.kind is ViewKind.QUERY
    assert created.query == SourceQuery(("docs", "pages"), {"text": "text"}, None)
    assert created.raw_query == source_query()
    assert created.output == WORDS.output


@pytest.mark.parametrize("kind", ["chunker", "scalar_udtf", "Chunker"])
def test_a_chunker_view_is_created_and_filled(stand: Stand, kind: str) -> None:
    body = view(kind, udtf_spec=udtf_spec(input_columns=["text"]), with_no_data=False)
    answer = stand.post("/v1/materialized_view/docs$words/create", json=body)
    assert (answer.status_code, answer.json()) == (201, {"version": 1, "job_id": "job-1"})
    (created,) = stand.views.created
    assert (created.function, created.inputs, created.kind) == (WORDS, ("text",), ViewKind.CHUNKER)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (view("udtf"), 406, "kind"),
        (view("sql"), 400, "kind"),
        (view("chunker"), 400, "udtf_spec"),
        (view("query", udtf_spec=udtf_spec()), 400, "udtf_spec"),
        (view("chunker", udtf_spec=udtf_spec(udtf_sha="0" * 64)), 400, "udtf_spec.udtf_sha"),
        (view("chunker", udtf_spec=udtf_spec(kind="udtf")), 400, "udtf_spec.kind"),
        (view("chunker", udtf_spec=udtf_spec(partition_by="x")), 400, "udtf_spec.partition_by"),
        (view("query", auto_refresh=True), 400, "auto_refresh"),
        (view("query", output_schema="AAAA"), 400, "output_schema"),
        (view("query", source_query="SELECT 1"), 400, "source_query"),
        (view("query", source_query=source_query(format="other")), 400, "source_query"),
        (view("query", source_query=source_query(source=[])), 400, "source_query.source"),
        (view("query", source_query=source_query(columns={})), 400, "source_query.columns"),
        (view("query", source_query=source_query(columns={"a": 1})), 400, "source_query.columns.a"),
        (view("query", source_query=source_query(joins=[])), 400, "source_query.joins"),
        ({"query": "SELECT 1"}, 400, "query"),
        ({"query": "SELECT a FROM b JOIN c"}, 406, "query"),
    ],
)
def test_views_that_cannot_be_made_are_refused_by_field(
    stand: Stand, body: dict[str, Any], status: int, field: str
) -> None:
    answer = stand.post("/v1/materialized_view/docs$words/create", json=body)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(f"{field}: ")
    assert stand.views.created == []


def test_a_function_that_is_no_chunker_makes_no_chunker_view(stand: Stand) -> None:
    text = encoded(LENGTH)
    spec = udtf_spec(udtf=text)
    answer = stand.post("/v1/materialized_view/v/create", json=view("chunker", udtf_spec=spec))
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (None, RefreshRequest()),
        ({"src_version": 3, "concurrency": 8, "intra_applier_concurrency": 1}, RefreshRequest(3, 8)),
        ({"source_version": 3, "full": True}, RefreshRequest(3, is_full=True)),
        ({"max_rows_per_fragment": 100, "cluster": None}, RefreshRequest(max_rows_per_fragment=100)),
    ],
)
def test_a_refresh_is_accepted(stand: Stand, body: dict[str, Any] | None, expected: RefreshRequest) -> None:
    answer = stand.post("/v1/materialized_view/docs$words/refresh", json=body)
    assert (answer.status_code, answer.json()) == (202, {"job_id": "job-1"})
    assert stand.jobs.jobs["job-1"].request == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("src_version", 0),
        ("max_rows_per_fragment", 0),
        ("output_limit", 5),
        ("cluster", "big"),
        ("manifest", "{}"),
        ("full", "yes"),
        ("surprise", 1),
    ],
)
def test_a_senseless_refresh_is_refused_by_field(stand: Stand, field: str, value: Any) -> None:
    answer = stand.post("/v1/materialized_view/docs$words/refresh", json={field: value})
    assert (answer.status_code, answer.json()["code"]) == (400, 13)
    assert answer.json()["error"].startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (JobState.QUEUED, "IN_PROGRESS"),
        (JobState.RUNNING, "IN_PROGRESS"),
        (JobState.DONE, "DONE"),
        (JobState.FAILED, "FAILED"),
        (JobState.CANCELLED, "CANCELLED"),
    ],
)
def test_a_job_has_the_states_lancedb_knows(stand: Stand, state: JobState, shown: str) -> None:
    stand.jobs.put(some_job("j", PAGES, BackfillRequest("size"), state))
    answer = stand.post("/v1/jobs/describe", json={"job_id": "j"}).json()
    assert answer == {
        "job_id": "j",
        "job_type": "backfill",
        "job_state": shown,
        "creation_ms": 1767323045000,
        "spec": {"table": "docs$pages", "column": "size"},
    }


def test_a_failed_job_says_why(stand: Stand) -> None:
    failed = some_job("j", PAGES, BackfillRequest("size"), JobState.FAILED)
    stand.jobs.put(replace(failed, failure=Failure("division by zero")))
    answer = stand.post("/v1/jobs/describe", json={"job_id": "j"}).json()
    assert answer["failure"] == {"phase": "execute", "message": "division by zero", "retryable": False}


def test_an_unknown_job_is_not_found(stand: Stand) -> None:
    answer = stand.post("/v1/jobs/describe", json={"job_id": "x"})
    assert (answer.status_code, answer.json()["code"]) == (404, 10)


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.DONE])
def test_cancelling_succeeds_also_when_the_job_is_over(stand: Stand, state: JobState) -> None:
    stand.jobs.put(some_job("j", PAGES, BackfillRequest("size"), state))
    assert stand.post("/v1/jobs/cancel", json={"job_id": "j"}).status_code == 200


def test_jobs_are_listed_in_pages(stand: Stand) -> None:
    for number in range(150):
        stand.jobs.put(some_job(f"j{number:03}", PAGES, BackfillRequest("size")))
    first = stand.post("/v1/jobs/list", json={}).json()
    assert (len(first["jobs"]), first["page_token"]) == (100, "j050")
    second = stand.post("/v1/jobs/list", json={"page_token": "j050"}).json()
    assert len(second["jobs"]) == 50
    assert "page_token" not in second


def test_events_come_as_an_arrow_stream(stand: Stand) -> None:
    stand.jobs.put(some_job("j", PAGES, BackfillRequest("size")))
    answer = stand.post("/v1/jobs/query_events", json={"job_id": "j"})
    events = pa.ipc.open_stream(answer.content).read_all()
    assert events.column_names[:5] == ["sequence", "at", "kind", "data", "state"]
    assert events["data"].to_pylist() == ['{"done":1}', '{"done":2}']


def test_a_schema_that_is_base64_of_something_else_is_refused(stand: Stand) -> None:
    body = view("query", output_schema=base64.b64encode(b"hello world").decode())
    assert stand.post("/v1/materialized_view/v/create", json=body).status_code == 400
