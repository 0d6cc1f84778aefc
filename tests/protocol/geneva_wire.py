"""Requests as Geneva's client makes them: functions, columns, views, and its way of waiting for jobs."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import time
from typing import Any, Final
from uuid import uuid4

import httpx
import lance
import pyarrow as pa

from tests.geneva import ENVELOPES
from tests.protocol.wire import TableOnWire, stream

JOB_TIMEOUT_SECONDS: Final = 200
HEADERS: Final = {"x-api-key": "k", "x-lancedb-database": "lake"}
JOB_COLUMNS: Final = [
    "table_name",
    "column_name",
    "job_id",
    "job_type",
    "object_ref",
    "status",
    "launched_at",
    "completed_at",
    "config",
    "launched_by",
    "manifest_id",
    "manifest_checksum",
    "metrics",
    "events",
    "updated_at",
    "cluster_name",
    "input_columns",
    "output_columns",
]
BACKFILL: Final = {
    "where": None,
    "concurrency": 8,
    "intra_applier_concurrency": 1,
    "min_checkpoint_size": None,
    "max_checkpoint_size": None,
    "batch_checkpoint_flush_interval_seconds": None,
    "task_size": None,
    "num_frags": None,
    "checkpoint_size": None,
    "commit_granularity": None,
    "cluster": None,
    "manifest": None,
}
REFRESH: Final = {
    "src_version": None,
    "max_rows_per_fragment": None,
    "concurrency": 8,
    "intra_applier_concurrency": 1,
    "source_task_size": None,
    "cluster": None,
    "output_limit": None,
    "manifest": None,
}
SCAN: Final = dict.fromkeys(
    [
        "vector_column",
        "vector",
        "filter",
        "postfilter",
        "full_text_query",
        "limit",
        "distance_type",
        "columns",
        "minimum_nprobes",
        "maximum_nprobes",
        "lower_bound",
        "upper_bound",
        "refine_factor",
        "with_row_id",
        "with_row_address",
        "fragments",
        "fragment_ids",
        "offset",
        "take_offsets",
        "fast_search",
        "use_lsm",
        "ef",
        "bypass_vector_index",
        "order_by",
    ]
)
SOURCE_ROW: Final = pa.field("__source_row_id", pa.int64())


def output(column: str, data_type: str, struct_field: str = "") -> dict[str, Any]:
    return {
        "column": column,
        "struct_field": struct_field,
        "data_type": {"type": data_type},
        "nullable": True,
    }


def function(name: str, inputs: list[str], *outputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    told = {"outputs": list(outputs)} if outputs else {}
    return {
        "input_columns": inputs,
        **told,
        "image": "test-image:latest",
        "udf": ENVELOPES[name],
        "udf_name": name,
        "udf_version": "95852d",
        "udf_backend": "DockerUDFSpecV1",
        "auto_backfill": False,
        "manifest": None,
        "manifest_checksum": None,
        **more,
    }


def new_column(name: str, column: dict[str, Any]) -> dict[str, Any]:
    entry = {"name": name, "expression": None, "computed": None, "virtual_column": column}
    return {"new_columns": [entry]}


def version_of(table: TableOnWire) -> int:
    version: int = table.asked("describe")["version"]
    return version


def backfill(table: TableOnWire, column: str, **options: Any) -> str:
    body = {"id": table.levels, "column": column, **BACKFILL, "read_version": version_of(table), **options}
    answer = table.post("backfill_column", body)
    assert answer.status_code == 202, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


def ended(http: httpx.Client, job_id: str) -> dict[str, Any]:
    """Does as the client does: writes the job down, then asks for it until it is over."""
    rows = pa.table({"job_id": [job_id], "status": ["PENDING"]})
    assert http.post("/v1/table/__system$geneva_jobs/insert", content=stream(rows)).status_code == 200
    give_up_at = time.monotonic() + JOB_TIMEOUT_SECONDS
    while time.monotonic() < give_up_at:
        for job in jobs(http, filter=f"job_id = '{job_id}'"):
            if job["status"] in ("DONE", "FAILED", "CANCELLED"):
                return job
        time.sleep(0.2)
    raise AssertionError(f"job {job_id} did not end")


def jobs(http: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    body = {
        "id": ["__system", "geneva_jobs"],
        "bypass_vector_index": True,
        "columns": {"column_names": JOB_COLUMNS},
        "k": 10,
        "prefilter": True,
        "vector": {"single_vector": []},
        "with_row_id": False,
        **query,
    }
    answer = http.post("/v1/table/__system$geneva_jobs/query", json=body)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = pa.ipc.open_file(io.BytesIO(answer.content)).read_all().to_pylist()
    return found


def filled(table: TableOnWire, column: str, **options: Any) -> list[Any]:
    job = ended(table.http, backfill(table, column, **options))
    assert job["status"] == "DONE", job
    values: list[Any] = opened(table).to_table().sort_by("x")[column].to_pylist()
    return values


def opened(table: TableOnWire) -> lance.LanceDataset:
    described = table.asked("describe")
    return lance.dataset(described["location"], version=described["version"])


def create_view(source: TableOnWire, kind: str, schema: list[pa.Field], **definition: Any) -> TableOnWire:
    view, answer = asked_for_view(source, kind, schema, **definition)
    assert answer.status_code == 201, answer.text
    return view


def asked_for_view(
    source: TableOnWire, kind: str, schema: list[pa.Field], **definition: Any
) -> tuple[TableOnWire, httpx.Response]:
    view = TableOnWire(source.http, source.namespace, f"v{uuid4().hex[:8]}")
    body = {"id": view.levels, **view_body(source, kind, schema, **definition)}
    answer = source.http.post(f"/v1/materialized_view/{view.namespace}${view.name}/create", json=body)
    return view, answer


def view_body(source: TableOnWire, kind: str, schema: list[pa.Field], **definition: Any) -> dict[str, Any]:
    query = {
        "base": SCAN | definition.pop("scan", {}),
        "shuffle": None,
        "shuffle_seed": None,
        "fragment_ids": None,
        "with_row_address": None,
        "column_udfs": definition.pop("column_udfs", None),
        "source_table": source.name,
        "source_db_uri": "db://lake",
    }
    return {
        "kind": kind,
        "source_query": json.dumps(query),
        "output_schema": base64.b64encode(pa.schema(schema).serialize().to_pybytes()).decode(),
        "udtf_spec": None,
        "with_no_data": True,
        "auto_refresh": False,
        **definition,
    }


def table_function(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "udtf": ENVELOPES[name],
        "udtf_sha": hashlib.sha256(ENVELOPES[name].encode()).hexdigest(),
        "udtf_name": name,
        "udtf_version": "ab12",
        "input_columns": None,
        "partition_by": None,
        "partition_by_indexed_column": None,
        "num_cpus": 1.0,
        "num_gpus": 0.0,
        "memory": None,
        "error_handling": None,
        "batch": None,
        "manifest": None,
        "manifest_checksum": None,
        **more,
    }


def refreshed(view: TableOnWire, *columns: str) -> list[tuple[Any, ...]]:
    path = f"/v1/materialized_view/{view.namespace}${view.name}/refresh"
    answer = view.http.post(path, json={"id": view.levels, **REFRESH})
    assert answer.status_code == 202, answer.text
    job = ended(view.http, answer.json()["job_id"])
    assert job["status"] == "DONE", job
    rows = opened(view).to_table()
    return sorted(zip(*(rows[name].to_pylist() for name in columns), strict=True))
