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
from tidemill.catalog.model.functions import Environment
from tidemill.catalog.model.identifiers import table_ident
from tidemill.catalog.sealed_variables import opened_variables
from tidemill.jobs.model.columns import ColumnOutput
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy
from tidemill.jobs.model.jobs import Failure, JobState
from tidemill.jobs.model.options import BackfillRequest, RefreshRequest
from tidemill.jobs.model.views import RefreshPolicy, SourceQuery, ViewKind
from tidemill.jobs.service.columns import ColumnDeclaration
from tidemill.jobs.views.definitions import FunctionColumn

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


def test_a_view_says_how_it_is_refreshed(stand: Stand) -> None:
    manifest = '{"name": "m", "pip": ["numpy"], "head_image": "x"}'
    on_error = {"action": "skip", "attempts": 2}
    body = view("query", auto_refresh=True, policy="incremental", on_error=on_error, manifest=manifest)
    assert stand.post("/v1/materialized_view/docs$words/create", json=body).status_code == 201
    (created,) = stand.views.created
    assert created.has_auto_refresh
    assert created.policy is RefreshPolicy.INCREMENTAL
    assert created.on_error == ErrorPolicy(ErrorAction.SKIP, 2)
    assert created.environment == Environment(("numpy",))


@pytest.mark.parametrize("error_handling", [{"action": "skip"}, '{"action": "skip"}', "skip"])
def test_a_table_function_gets_rows_in_parts(stand: Stand, error_handling: Any) -> None:
    spec = udtf_spec(
        kind="udtf",
        partition_by="text",
        error_handling=error_handling,
        manifest='{"env_vars": {"A": "1"}}',
        manifest_checksum="c",
    )
    answer = stand.post("/v1/materialized_view/docs$words/create", json=view("udtf", udtf_spec=spec))
    assert answer.status_code == 201, answer.text
    (created,) = stand.views.created
    assert (created.kind, created.partition_by, created.partition_index) == (ViewKind.UDTF, "text", None)
    assert created.on_error == ErrorPolicy(ErrorAction.SKIP)
    opened = opened_variables(created.environment, stand.environments.cipher)
    assert opened == Environment((), {"A": "1"})


def test_the_parts_may_be_those_of_an_index(stand: Stand) -> None:
    spec = udtf_spec(kind="udtf", partition_by_indexed_column="vector")
    stand.post("/v1/materialized_view/docs$words/create", json=view("udtf", udtf_spec=spec))
    (created,) = stand.views.created
    assert (created.partition_by, created.partition_index) == (None, "vector")


def test_a_query_view_has_columns_of_functions_and_a_window(stand: Stand) -> None:
    function = {"name": "size", "index": 1, "envelope": encoded(LENGTH), "inputs": ["text"]}
    text = source_query(functions=[function], limit=5, offset=0)
    stand.post("/v1/materialized_view/docs$words/create", json=view("query", source_query=text))
    (created,) = stand.views.created
    field = "source_query.functions[0].envelope"
    assert created.columns == (FunctionColumn("size", 1, LENGTH, ("text",), field),)
    assert created.query == SourceQuery(("docs", "pages"), {"text": "text"}, None, 5, 0)


@pytest.mark.parametrize(
    "text", ["SELECT text FROM docs.pages LIMIT 2", "-- mine\nselect text from docs.pages limit 2"]
)
def test_a_scan_may_be_given_as_sql(stand: Stand, text: str) -> None:
    body = view("query", source_query=text, output_schema=None)
    assert stand.post("/v1/materialized_view/docs$words/create", json=body).status_code == 201
    (created,) = stand.views.created
    assert created.query == SourceQuery(("docs", "pages"), {"text": "`text`"}, None, 2)
    assert (created.statement, created.output, created.raw_query) == (None, None, text)


@pytest.mark.parametrize("key", ["source_query", "query"])
def test_other_sql_is_left_to_spark(stand: Stand, key: str) -> None:
    text = "SELECT text, count(*) AS n FROM docs.pages GROUP BY text"
    body = {"kind": "query", "source_query": text} if key == "source_query" else {"query": text}
    answer = stand.post("/v1/materialized_view/docs$words/create", json=body)
    assert answer.status_code == (201 if key == "source_query" else 202)
    (created,) = stand.views.created
    assert (created.query, created.statement, created.query_field) == (SourceQuery(()), text, key)


@pytest.mark.parametrize("text", ["opaque", "{}", "[1]", source_query(format="other"), " text\u00e4 "])
def test_a_definition_in_another_form_is_kept(stand: Stand, text: str) -> None:
    answer = stand.post("/v1/materialized_view/docs$words/create", json=view("query", source_query=text))
    assert answer.status_code == 201
    (created,) = stand.views.created
    assert (created.is_opaque, created.raw_query) == (True, text)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (view("udtf"), 400, "udtf_spec"),
        (view("sql"), 400, "kind"),
        (view("chunker"), 400, "udtf_spec"),
        (view("query", udtf_spec=udtf_spec()), 400, "udtf_spec"),
        (view("chunker", udtf_spec=udtf_spec(udtf_sha="0" * 64)), 400, "udtf_spec.udtf_sha"),
        (view("chunker", udtf_spec=udtf_spec(kind="udtf")), 400, "udtf_spec.kind"),
        (view("chunker", udtf_spec=udtf_spec(num_gpus=1)), 406, "udtf_spec.num_gpus"),
        (view("chunker", udtf_spec=udtf_spec(memory="1 GB")), 400, "udtf_spec.memory"),
        (view("chunker", udtf_spec=udtf_spec(error_handling="boom")), 400, "udtf_spec.error_handling"),
        (
            view("chunker", udtf_spec=udtf_spec(error_handling={"attempts": 0})),
            400,
            "udtf_spec.error_handling.attempts",
        ),
        (view("chunker", udtf_spec=udtf_spec(manifest="unknown")), 400, "udtf_spec.manifest"),
        (
            view("chunker", udtf_spec=udtf_spec(manifest='{"conda": {"a": 1}}')),
            400,
            "udtf_spec.manifest.conda",
        ),
        (view("query", auto_refresh="yes"), 400, "auto_refresh"),
        (view("query", policy="sometimes"), 400, "policy"),
        (view("query", on_error="boom"), 400, "on_error"),
        (view("query", manifest="unknown"), 400, "manifest"),
        (view("query", output_schema="AAAA"), 400, "output_schema"),
        (view("query", source_query="SELECT id + 1 FROM t"), 400, "source_query"),
        (view("query", source_query="opaque", output_schema=None), 400, "output_schema"),
        (view("query", output_schema=None), 400, "output_schema"),
        (view("query", source_query=source_query(limit=-1)), 400, "source_query.limit"),
        (view("query", source_query=source_query(offset="1")), 400, "source_query.offset"),
        (view("query", source_query=source_query(functions={})), 400, "source_query.functions"),
        (view("query", source_query=source_query(functions=[{}])), 400, "source_query.functions[0].name"),
        (
            view("query", source_query=source_query(functions=[{"name": "a", "index": 0, "envelope": "%"}])),
            400,
            "source_query.functions[0].envelope",
        ),
        (view("query", source_query=source_query(source=[])), 400, "source_query.source"),
        (view("query", source_query=source_query(columns={})), 400, "source_query.columns"),
        (view("query", source_query=source_query(columns={"a": 1})), 400, "source_query.columns.a"),
        (view("query", source_query=source_query(joins=[])), 400, "source_query.joins"),
        ({"query": "SELECT a + 1 FROM b"}, 400, "query"),
        ({"query": "SELECT a FROM b", "kind": "query"}, 400, "kind"),
        ({"query": "SELECT a FROM b", "source_query": "c"}, 400, "query"),
    ],
)
def test_views_that_cannot_be_made_are_refused_by_field(
    stand: Stand, body: dict[str, Any], status: int, field: str
) -> None:
    answer = stand.post("/v1/materialized_view/docs$words/create", json=body)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(f"{field}: ")
    assert stand.views.created == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (None, RefreshRequest()),
        ({"src_version": 3, "concurrency": 8, "intra_applier_concurrency": 1}, RefreshRequest(3, 8, 1)),
        ({"source_version": 3, "full": True}, RefreshRequest(3, policy=RefreshPolicy.FULL)),
        ({"full": True, "policy": "full"}, RefreshRequest(policy=RefreshPolicy.FULL)),
        ({"full": False, "policy": "incremental"}, RefreshRequest(policy=RefreshPolicy.INCREMENTAL)),
        (
            {"max_rows_per_fragment": 100, "source_task_size": 7, "output_limit": 0, "cluster": "big"},
            RefreshRequest(max_rows_per_fragment=100, source_task_size=7, output_limit=0, cluster="big"),
        ),
        (
            {"manifest": '{"pip": ["numpy"]}', "on_error": "skip"},
            RefreshRequest(manifest='{"pip": ["numpy"]}', on_error=ErrorPolicy(ErrorAction.SKIP)),
        ),
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
        ("output_limit", -1),
        ("source_task_size", 0),
        ("intra_applier_concurrency", 257),
        ("cluster", 5),
        ("manifest", {"pip": []}),
        ("source_version", 0),
        ("full", "yes"),
        ("policy", "never"),
        ("on_error", "boom"),
        ("surprise", 1),
    ],
)
def test_a_senseless_refresh_is_refused_by_field(stand: Stand, field: str, value: Any) -> None:
    answer = stand.post("/v1/materialized_view/docs$words/refresh", json={field.split(".")[0]: value})
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
