"""Operations that start jobs, through the client generated from the specification: backfills and views."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import httpx
import pyarrow as pa
import pytest
from lance_namespace_urllib3_client import ApiClient, ApiException, MaterializedViewApi, TableApi
from lance_namespace_urllib3_client.models import (
    AlterTableBackfillColumnsRequest,
    CreateMaterializedViewRequest,
    DescribeTableRequest,
    RefreshMaterializedViewRequest,
)

import tidemill
from tests.protocol.generated import refusal
from tests.protocol.wire import TableOnWire, some_rows

JOB_TIMEOUT_SECONDS = 200


@tidemill.udf
def double(id: int) -> int:
    return id * 2


@pytest.fixture
def tables(generated: ApiClient) -> TableApi:
    return TableApi(generated)


@pytest.fixture
def views(generated: ApiClient) -> MaterializedViewApi:
    return MaterializedViewApi(generated)


def creation(source: TableOnWire, **options: Any) -> CreateMaterializedViewRequest:
    """A view of the source's ids above one."""
    schema = pa.schema([pa.field("id", pa.int64())])
    query = {
        "format": "tidemill.query/1",
        "source": source.levels,
        "columns": {"id": "id"},
        "filter": "id > 1",
    }
    return CreateMaterializedViewRequest(
        kind="query",
        source_query=json.dumps(query),
        output_schema=base64.b64encode(schema.serialize().to_pybytes()).decode(),
        **options,
    )


def wait_for(http: httpx.Client, job_id: str | None) -> None:
    give_up_at = time.monotonic() + JOB_TIMEOUT_SECONDS
    while True:
        job = http.post("/v1/jobs/describe", json={"job_id": job_id}).json()
        if job["job_state"] != "IN_PROGRESS":
            break
        assert time.monotonic() < give_up_at
        time.sleep(0.1)
    assert job["job_state"] == "DONE", job


def column(table: TableOnWire, name: str) -> list[int]:
    answer = table.post("query", {"k": 100, "columns": {"column_names": [name]}})
    assert answer.status_code == 200, answer.text
    values: list[int] = pa.ipc.open_file(answer.content).read_all()[name].to_pylist()
    return sorted(values)


@pytest.mark.operation("AlterTableBackfillColumns", client="urllib3")
def test_a_backfill_is_a_job_that_fills_the_column(
    tables: TableApi, table: TableOnWire, lake: tidemill.Lake
) -> None:
    lake.table(table.levels).add_column("double", double)
    request = AlterTableBackfillColumnsRequest(column="double")
    answer = tables.alter_table_backfill_columns_with_http_info("$".join(table.levels), request)
    assert answer.status_code == 202
    wait_for(table.http, answer.data.job_id)
    assert column(table, "double") == [2, 4, 6]


@pytest.mark.operation("AlterTableBackfillColumns", client="urllib3")
def test_a_column_that_does_not_exist_is_not_backfilled(tables: TableApi, table: TableOnWire) -> None:
    with pytest.raises(ApiException) as raised:
        tables.alter_table_backfill_columns(
            "$".join(table.levels), AlterTableBackfillColumnsRequest(column="nothing")
        )
    assert refusal(raised) == (404, 12)


@pytest.mark.operation("CreateMaterializedView", "RefreshMaterializedView", client="urllib3")
def test_a_view_is_created_and_follows_its_source(
    views: MaterializedViewApi, tables: TableApi, table: TableOnWire
) -> None:
    view = TableOnWire(table.http, table.namespace, "v")
    made = views.create_materialized_view_with_http_info("$".join(view.levels), creation(table))
    assert made.status_code == 201
    assert column(view, "id") == []
    for rows, expected in ((None, [2, 3]), (some_rows(4), [2, 3, 4, 5, 6])):
        if rows is not None:
            table.insert(rows)
        answer = views.refresh_materialized_view_with_http_info(
            "$".join(view.levels), refresh_materialized_view_request=RefreshMaterializedViewRequest()
        )
        assert answer.status_code == 202
        wait_for(table.http, answer.data.job_id)
        assert column(view, "id") == expected
    seen = tables.describe_table("$".join(view.levels), DescribeTableRequest())
    assert seen.var_schema is not None
    assert [field.name for field in seen.var_schema.fields] == ["id"]
    assert column(view, "__source_row_id") == [1, 2, 3, 4, 5]


@pytest.mark.operation("CreateMaterializedView", client="urllib3")
def test_a_view_may_be_filled_at_once(views: MaterializedViewApi, table: TableOnWire) -> None:
    view = TableOnWire(table.http, table.namespace, "v")
    made = views.create_materialized_view("$".join(view.levels), creation(table, with_no_data=False))
    wait_for(table.http, made.job_id)
    assert column(view, "id") == [2, 3]


@pytest.mark.operation("CreateMaterializedView", client="urllib3")
def test_a_name_that_is_taken_makes_no_view(views: MaterializedViewApi, table: TableOnWire) -> None:
    with pytest.raises(ApiException) as raised:
        views.create_materialized_view("$".join(table.levels), creation(table))
    assert refusal(raised) == (409, 5)


@pytest.mark.operation("RefreshMaterializedView", client="urllib3")
def test_a_view_that_does_not_exist_is_not_refreshed(views: MaterializedViewApi, table: TableOnWire) -> None:
    with pytest.raises(ApiException) as raised:
        views.refresh_materialized_view(f"{table.namespace}$nowhere")
    assert refusal(raised) == (404, 4)
