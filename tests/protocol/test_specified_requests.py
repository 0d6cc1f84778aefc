"""Requests as the specification and its generated clients write them: accepted, or refused for a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from lance_namespace_urllib3_client import ApiClient, ApiException, TableApi
from lance_namespace_urllib3_client.models import (
    AlterTableBackfillColumnsRequest,
    CountTableRowsRequest,
    CreateTableVersionRequest,
    DescribeTableRequest,
    QueryTableRequest,
    QueryTableRequestVector,
)

import tidemill
from tests.protocol.generated import refusal
from tests.protocol.wire import TableOnWire, check_refusal, commit_body, renumbered, some_rows, stream

CREATED = pytest.mark.operation("CreateTable", client="http")


@pytest.fixture
def tables(generated: ApiClient) -> TableApi:
    return TableApi(generated)


def created(table: TableOnWire, options: dict[str, str], **query: str) -> Any:
    params = {"storage_options": json.dumps(options), **query}
    return table.post("create", content=stream(some_rows()), params=params)


@CREATED
@pytest.mark.parametrize(
    "options",
    [
        # The specification's own example.
        {"aws_region": "us-east-1", "timeout": "30s"},
        {"AWS_REGION": "x", "connect_timeout": "5s", "client_max_retries": "3", "allow_http": "true"},
        {"new_table_enable_stable_row_ids": "true", "new_table_enable_v2_manifest_paths": "True"},
        {},
    ],
)
def test_options_that_only_tune_a_transfer_are_accepted(table: TableOnWire, options: dict[str, str]) -> None:
    made = TableOnWire(table.http, table.namespace, "tuned")
    assert created(made, options).status_code == 200
    assert made.asked("count_rows") == 3


@CREATED
def test_the_generated_client_sends_the_example(tables: TableApi, namespace: str) -> None:
    options = '{"aws_region":"us-east-1","timeout":"30s"}'
    answer = tables.create_table(f"{namespace}$tuned", stream(some_rows()), storage_options=options)
    assert answer.version == 1


@CREATED
@pytest.mark.parametrize(
    "name",
    [
        "aws_endpoint",
        "endpoint_url",
        "AWS_ENDPOINT_URL_S3",
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "azure_storage_account_name",
        "google_service_account",
        "proxy_url",
        "role_arn",
        "aws_server_side_encryption",
        "aws_sse_kms_key_id",
        "new_table_data_storage_version",
        "something_else",
        "",
    ],
)
def test_options_that_would_be_believed_are_refused_by_name(table: TableOnWire, name: str) -> None:
    made = TableOnWire(table.http, table.namespace, "redirected")
    answer = created(made, {"timeout": "30s", name: "http://127.0.0.1:1/hidden"})
    check_refusal(answer, 400, 13, f"storage_options.{name}")
    assert "hidden" not in answer.text
    check_refusal(made.post("describe", {}), 404, 4)


@pytest.mark.operation("QueryTable", client="http")
@pytest.mark.parametrize(
    "vector",
    [
        {"single_vector": [], "multi_vector": []},
        {"single_vector": None, "multi_vector": []},
        {"single_vector": []},
        {"multi_vector": []},
        {"multi_vector": [[]]},
        {},
        [],
        None,
    ],
)
def test_no_vector_is_a_scan(still: TableOnWire, vector: Any) -> None:
    answer = still.post("query", {"k": 9, "vector": vector})
    assert answer.status_code == 200, answer.text
    assert pa.ipc.open_file(answer.content).read_all()["id"].to_pylist() == [1, 2, 3]


@pytest.mark.operation("QueryTable", client="urllib3")
def test_the_generated_client_sends_empty_vectors(tables: TableApi, still: TableOnWire) -> None:
    vector = QueryTableRequestVector(single_vector=[], multi_vector=[])
    found = tables.query_table("$".join(still.levels), QueryTableRequest(k=9, vector=vector))
    assert pa.ipc.open_file(bytes(found)).read_all().num_rows == 3


@pytest.mark.operation("CreateTableVersion", client="http")
def test_a_path_with_a_leading_slash_is_relative_to_the_table(table: TableOnWire) -> None:
    staged = table.stage(2)
    path = f"/_versions/{staged.name}"
    made = table.asked("version/create", commit_body(2, staged, manifest_path=path))["version"]
    assert made["manifest_path"].startswith(f"{str(table.directory).lstrip('/')}/_versions/")
    assert table.numbers() == [1, 2]
    again = table.asked("version/create", commit_body(2, staged, manifest_path=path))["version"]
    assert again == made


@pytest.mark.operation("BatchCommitTables", client="http")
def test_a_batch_has_such_paths_too(table: TableOnWire) -> None:
    staged = table.stage(2)
    entry = commit_body(2, staged, manifest_path=f"/_versions/{staged.name}", id=table.levels)
    body = {"operations": [{"create_table_version": entry}]}
    answer = table.http.post("/v1/table/batch-commit", json=body)
    assert answer.status_code == 200, answer.text
    assert table.numbers() == [1, 2]


@pytest.mark.operation("CreateTableVersion", client="http")
@pytest.mark.parametrize(
    "form",
    [
        "/../{other}/_versions/{name}",
        "/_versions/../../{other}/_versions/{name}",
        "//{root}/{other}/_versions/{name}",
        "/{root}/{other}/_versions/{name}",
        "/_versions//{name}",
        "/_versions/./{name}",
        "/{name}",
        "/",
        "/_versions/",
        "/%2e%2e/{other}/_versions/{name}",
        "/tree/dev/_versions/{name}",
    ],
)
def test_such_a_path_does_not_leave_the_table(table: TableOnWire, still: TableOnWire, form: str) -> None:
    foreign, own = still.stage(2), table.stage(2)
    before = still.versions()
    (table.directory / "_versions" / foreign.name).write_bytes(own.read_bytes())
    try:
        root, other = str(still.directory.parent).lstrip("/"), still.directory.name
        path = form.format(root=root, other=other, name=foreign.name)
        body = commit_body(2, own, manifest_path=path)
        check_refusal(table.post("version/create", body), 400, 13, "manifest_path")
        assert (table.numbers(), still.versions()) == ([1], before)
    finally:
        foreign.unlink()


@pytest.mark.operation("CreateTableVersion", client="http")
def test_a_table_has_one_naming_scheme(table: TableOnWire) -> None:
    staged = table.stage(2)
    refused = table.post("version/create", commit_body(2, staged, naming_scheme="V1"))
    check_refusal(refused, 400, 13, "naming_scheme")
    assert lance.dataset(str(table.directory)).version == 1
    body = commit_body(2, staged)
    del body["naming_scheme"]
    table.asked("version/create", body)
    assert lance.dataset(str(table.directory)).version == 2


@pytest.mark.operation("RegisterTable", "CreateTableVersion", client="http")
def test_a_table_of_the_older_scheme_keeps_it(table: TableOnWire, tmp_path: Path) -> None:
    """A version without a scheme is named like those before it, so readers by path find it."""
    location = table.directory.parent / f"{tmp_path.name}.lance"
    lance.write_dataset(some_rows(), location, enable_v2_manifest_paths=False)
    old = TableOnWire(table.http, table.namespace, "old")
    old.asked("register", {"location": str(location)})
    versions = location / "_versions"
    assert (versions / "1.manifest").exists()
    for number, scheme in ((2, None), (3, "V1")):
        staged = versions / f"{number}.manifest-{uuid4()}"
        staged.write_bytes(renumbered((versions / "1.manifest").read_bytes(), number))
        body = {"version": number, "manifest_path": f"/_versions/{staged.name}", "naming_scheme": scheme}
        check_refusal(old.post("version/create", body | {"naming_scheme": "V2"}), 400, 13, "naming_scheme")
        old.asked("version/create", body)
        assert (versions / f"{number}.manifest").exists()
        assert lance.dataset(location).version == number


@pytest.mark.operation("DescribeTable", "CountTableRows", "QueryTable", client="http")
@pytest.mark.parametrize("action", ["describe", "count_rows", "query", "exists", "version/list", "stats"])
def test_an_empty_id_is_no_id(still: TableOnWire, action: str) -> None:
    """The Java client sends an empty list for an id that was not set."""
    body = {"id": [], "k": 1} if action == "query" else {"id": []}
    assert still.post(action, body).status_code == 200
    check_refusal(still.post(action, {**body, "id": ["other"]}), 400, 13, "id")


@pytest.mark.operation("ExplainTableQueryPlan", "DescribeNamespace", client="http")
def test_an_empty_id_is_no_id_inside_a_query_and_for_a_namespace(still: TableOnWire) -> None:
    assert still.post("explain_plan", {"id": [], "query": {"id": [], "k": 1}}).status_code == 200
    check_refusal(still.post("explain_plan", {"query": {"id": ["x"], "k": 1}}), 400, 13, "query.id")
    assert still.http.post("/v1/namespace/still/describe", json={"id": []}).status_code == 200


@pytest.mark.operation("DescribeTable", client="urllib3")
def test_the_generated_client_sends_an_empty_id(tables: TableApi, still: TableOnWire) -> None:
    assert tables.describe_table("$".join(still.levels), DescribeTableRequest(id=[])).version == 1


@pytest.mark.operation("DescribeTableVersion", "QueryTable", "CountTableRows", client="http")
@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("describe", {}),
        ("exists", {}),
        ("version/describe", {}),
        ("query", {"k": 1}),
        ("count_rows", {}),
        ("restore", {}),
        ("tags/create", {"tag": "zero"}),
    ],
)
def test_there_is_no_version_zero(unchanged: TableOnWire, action: str, body: dict[str, Any]) -> None:
    """The specification allows the number, so it is a version that is not there instead of a wrong value."""
    answer = unchanged.post(action, {**body, "version": 0})
    check_refusal(answer, 404, 11)
    assert "has no version 0; versions start at 1" in answer.json()["error"]


@pytest.mark.operation("CreateTableVersion", client="urllib3")
def test_version_zero_cannot_be_created(tables: TableApi, unchanged: TableOnWire) -> None:
    staged = unchanged.stage(2)
    try:
        request = CreateTableVersionRequest(**commit_body(0, staged))
        with pytest.raises(ApiException) as raised:
            tables.create_table_version("$".join(unchanged.levels), request)
        assert refusal(raised) == (400, 13)
        assert "versions start at 1; the next one of still.t is 2" in str(raised.value.body)
    finally:
        staged.unlink()


@pytest.mark.operation("CountTableRows", client="urllib3")
def test_rows_of_version_zero_are_not_counted(tables: TableApi, still: TableOnWire) -> None:
    with pytest.raises(ApiException) as raised:
        tables.count_table_rows("$".join(still.levels), CountTableRowsRequest(version=0))
    assert refusal(raised) == (404, 11)


@pytest.mark.operation("AlterTableBackfillColumns", client="http")
def test_a_version_without_the_column_is_refused_at_once(
    table: TableOnWire, tables: TableApi, lake: tidemill.Lake
) -> None:
    @tidemill.udf
    def twice(id: int) -> int:
        return id * 2

    lake.table(table.levels).add_column("twice", twice)
    body = {"column": "twice", "read_version": 1}
    answer = table.post("backfill_column", body)
    check_refusal(answer, 400, 13, "read_version")
    assert f"version 1 of {table.namespace}.t has no column 'twice'" in answer.json()["error"]
    with pytest.raises(ApiException) as raised:
        tables.alter_table_backfill_columns(
            "$".join(table.levels), AlterTableBackfillColumnsRequest(column="twice", read_version=1)
        )
    assert refusal(raised) == (400, 13)
    explained = table.http.post(f"/api/v1/tables/{table.namespace}$t/explain", json=body)
    assert explained.status_code == 400
    assert "read_version: version 1" in explained.text
    jobs = table.http.get("/api/v1/jobs", params={"table": "$".join(table.levels)}).json()["jobs"]
    assert jobs == []
