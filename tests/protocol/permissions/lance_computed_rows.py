"""The permissions that the Lance protocol's routes of columns, indexes, views, jobs and functions need."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from tests.protocol.permissions.lance_requests import fresh, home, new, nothing, still
from tests.protocol.permissions.matrix import (
    AWAY,
    HOME,
    ROOT,
    Preparation,
    Request,
    Row,
    browse,
    compute,
    function,
    manage,
    on,
    read,
    read_untold,
    request,
    write,
)
from tests.protocol.permissions.objects import COMPUTED, REGISTRATION, Objects, ident_of, new_name
from tests.protocol.view_wire import LENGTH, function_text, table_view
from tests.protocol.view_wire import query as source_query
from tests.protocol.wire import stream

INDEX: Final = {"column": "id", "index_type": "BTREE"}
CANCEL: Final = {"actions": [{"setStatusAction": {"status": "CANCELED"}}]}
NOTE: Final = {"actions": [{"setPropertyAction": {"key": "note", "value": "x"}}]}
INLINE_MANIFEST: Final = json.dumps({"pip": ["numpy"]})


def registered_column(objects: Objects) -> Request:
    found = objects.still_function
    reference = {key: found[key] for key in ("name", "namespace_path", "version", "object_id")}
    inputs = [{"kind": "column", "parameter": "x", "value": {"path": "id"}}]
    body = {
        "new_columns": [{"name": "doubled"}],
        "function": {
            "application": {"function": reference, "inputs": inputs},
            "outputs": [{"output_name": "doubled", "result_field": "$value", "output_ordinal": 0}],
        },
    }
    return on(objects.ident(HOME), body)


def other_function(objects: Objects) -> Request:
    column = {"udf": function_text(LENGTH), "input_columns": ["text"]}
    return on(objects.computed(), {"alterations": [{"path": "length", "virtual_column": column}]})


def backfill(**options: Any) -> Preparation:
    return lambda objects: on(objects.computed(), {"column": "length", **options})


COLUMN_ROWS: Final = (
    Row(
        "POST /v1/table/{id}/add_columns",
        (write(HOME),),
        fresh({"new_columns": [{"name": "next", "expression": "id + 1"}]}),
        "by an expression",
    ),
    Row(
        "POST /v1/table/{id}/add_columns",
        (write(HOME),),
        fresh(content=stream(pa.schema([pa.field("empty", pa.int64())]).empty_table())),
        "without values",
    ),
    Row("POST /v1/table/{id}/add_columns", (write(HOME), function(HOME)), fresh(COMPUTED), "with a function"),
    Row(
        "POST /v1/table/{id}/add_columns",
        (write(HOME),),
        registered_column,
        "with a registered function",
    ),
    Row(
        "POST /v1/table/{id}/add_columns",
        (read(HOME),),
        still({**COMPUTED, "branch": "side"}),
        "on another branch",
        status=400,
    ),
    Row("POST /v1/table/{id}/backfill_column", (compute(HOME),), backfill()),
    Row(
        "POST /v1/table/{id}/backfill_column",
        (compute(HOME), function(ROOT)),
        backfill(manifest=INLINE_MANIFEST),
        "with packages",
    ),
    Row(
        "POST /v1/table/{id}/backfill_column",
        (compute(HOME), read(ROOT)),
        lambda objects: on(objects.computed(), {"column": "length", "manifest": objects.still_manifest}),
        "with a manifest",
    ),
    Row(
        "POST /v1/table/{id}/alter_columns",
        (write(HOME),),
        fresh({"alterations": [{"path": "id", "rename": "number"}]}),
    ),
    Row(
        "POST /v1/table/{id}/alter_columns",
        (write(HOME), function(HOME)),
        other_function,
        "with another function",
    ),
    Row("POST /v1/table/{id}/drop_columns", (write(HOME),), fresh({"columns": ["text"]})),
    Row(
        "POST /v1/table/{id}/update_field_metadata",
        (write(HOME),),
        fresh({"updates": [{"path": "id", "metadata": {"a": "b"}}]}),
    ),
    Row("POST /v1/table/{id}/errors", (read(HOME),), lambda objects: on(objects.still_computed, {})),
    Row("POST /v1/table/{id}/errors", (read(HOME),), still({"column": "none"}), "of an unknown column"),
)


def index_of(objects: Objects) -> dict[str, str]:
    return {"id": objects.indexed, "index_name": "by_id"}


def drop_index(objects: Objects) -> Request:
    """The index is not built yet: dropping it cancels the job."""
    table = objects.table(HOME)
    table.asked("create_scalar_index", INDEX)
    return request({}, parameters={"id": ident_of(table), "index_name": "id_idx"})


INDEX_ROWS: Final = (
    Row("POST /v1/table/{id}/create_index", (write(HOME),), fresh(INDEX)),
    Row("POST /v1/table/{id}/create_scalar_index", (write(HOME),), fresh(INDEX)),
    Row("POST /v1/table/{id}/index/list", (read(HOME),), still({})),
    Row(
        "POST /v1/table/{id}/index/{index_name}/stats",
        (read(HOME),),
        lambda objects: request({}, parameters=index_of(objects)),
    ),
    Row(
        "GET /v1/table/{id}/index/{index_name}/stats",
        (read(HOME),),
        lambda objects: request(parameters=index_of(objects)),
    ),
    Row("POST /v1/table/{id}/index/{index_name}/drop", (write(HOME),), drop_index),
    Row(
        "POST /v1/table/{id}/index/{index_name}/prewarm",
        (read(HOME),),
        lambda objects: request({}, parameters=index_of(objects)),
    ),
)

TRANSACTION_ROWS: Final = (
    Row(
        "POST /v1/transaction/{id}/describe",
        (read(HOME),),
        lambda objects: on(f"{objects.still}$1", {}),
        "of a version",
    ),
    Row(
        "POST /v1/transaction/{id}/describe",
        (read(HOME),),
        lambda objects: on(objects.still_job, {}),
        "of a job",
    ),
    Row(
        "POST /v1/transaction/{id}/alter",
        (write(HOME),),
        lambda objects: on(f"{objects.ident(HOME)}$1", NOTE),
        "that notes a property",
    ),
    Row(
        "POST /v1/transaction/{id}/alter",
        (write(HOME), compute(HOME)),
        lambda objects: on(objects.job(), CANCEL),
        "that cancels a job",
    ),
)


def sql_view(*, with_no_data: bool) -> Preparation:
    def prepare(objects: Objects) -> Request:
        query = f"SELECT id FROM {'.'.join(objects.still_away.levels)}"
        return on(f"{HOME}${new_name()}", {"query": query, "with_no_data": with_no_data})

    return prepare


def function_view(objects: Objects) -> Request:
    return on(f"{HOME}${new_name()}", table_view(source_query(*objects.still_away.levels)))


def view_query(column: str) -> Preparation:
    def prepare(objects: Objects) -> Request:
        query = f"SELECT {column} FROM {'.'.join(objects.still_away.levels)}"
        return on(f"{HOME}${new_name()}", {"query": query})

    return prepare


VIEW_ROWS: Final = (
    Row(
        "POST /v1/materialized_view/{id}/create",
        (write(HOME), read(AWAY)),
        sql_view(with_no_data=True),
        "without data",
    ),
    Row(
        "POST /v1/materialized_view/{id}/create",
        (write(HOME), compute(HOME), read(AWAY)),
        sql_view(with_no_data=False),
        "that is filled",
    ),
    Row(
        "POST /v1/materialized_view/{id}/create",
        (write(HOME), function(HOME), read(AWAY)),
        function_view,
        "with a function",
    ),
    Row(
        "POST /v1/materialized_view/{id}/refresh",
        (compute(HOME),),
        lambda objects: on(objects.materialized_view(), {}),
    ),
    Row(
        "POST /v1/materialized_view/{id}/describe",
        (read(HOME),),
        lambda objects: on(objects.still_view, {}),
    ),
    Row(
        "POST /v1/materialized_view/{id}/describe",
        (read(HOME),),
        lambda objects: on(objects.function_view, {}),
        "with a function",
    ),
    Row(
        "POST /v1/materialized_view/{id}/drop",
        (manage(HOME),),
        lambda objects: on(objects.materialized_view(), {}),
    ),
    Row("GET /v1/namespace/{id}/materialized_view/list", (read(HOME),), home()),
    Row("POST /v1/view/{id}/create", (write(HOME), read(AWAY)), view_query("id")),
    Row(
        "POST /v1/view/{id}/create",
        (read(AWAY),),
        view_query("missing"),
        "of a column that is not there",
        status=400,
    ),
    Row("POST /v1/view/{id}/describe", (read(HOME),), lambda objects: on(objects.still_query, {})),
    Row("POST /v1/view/{id}/drop", (manage(HOME),), lambda objects: on(objects.stored_query(), {})),
    Row("GET /v1/namespace/{id}/view/list", (read(HOME),), home()),
)


def about_job(*, is_fresh: bool = False) -> Preparation:
    return lambda objects: request({"job_id": objects.job() if is_fresh else objects.still_job})


def about_registration(objects: Objects) -> Request:
    return request({"job_id": objects.registration_job})


def paused_job(objects: Objects) -> Request:
    job_id = objects.job()
    objects.ask("POST", "/v1/jobs/pause", {"job_id": job_id})
    return request({"job_id": job_id})


JOB_ROWS: Final = (
    Row("POST /v1/jobs/list", (browse(ROOT),), nothing({})),
    Row("POST /v1/jobs/describe", (read(HOME),), about_job()),
    Row("POST /v1/jobs/describe", (read_untold(HOME),), about_registration, "of a registration"),
    Row("POST /v1/jobs/cancel", (compute(HOME),), about_job(is_fresh=True)),
    Row("POST /v1/jobs/cancel", (read_untold(HOME),), about_registration, "of a registration, which is over"),
    Row("POST /v1/jobs/query_events", (read(HOME),), about_job()),
    Row("POST /v1/jobs/pause", (compute(HOME),), about_job(is_fresh=True)),
    Row("POST /v1/jobs/resume", (compute(HOME),), paused_job),
)

FUNCTION_ROWS: Final = (
    Row("POST /v1/function/{id}/create", (function(HOME),), new(REGISTRATION)),
    Row(
        "POST /v1/function/{id}/describe",
        (read(HOME),),
        lambda objects: on(objects.function(), {"version": "1"}),
    ),
    Row(
        "POST /v1/function/{id}/drop",
        (function(HOME),),
        lambda objects: on(objects.function(), {"version": "1"}),
    ),
    Row("GET /v1/namespace/{id}/function/list", (read(HOME),), home()),
    Row("POST /v1/secret/{id}/create", (function(HOME),), new({"value": "hidden"})),
    Row(
        "POST /v1/secret/{id}/alter",
        (function(HOME),),
        lambda objects: on(objects.secret(), {"value": "other"}),
    ),
    Row("POST /v1/secret/{id}/describe", (read(HOME),), lambda objects: on(objects.secret(), {})),
    Row("POST /v1/secret/{id}/drop", (function(HOME),), lambda objects: on(objects.secret(), {})),
    Row("GET /v1/namespace/{id}/secret/list", (read(HOME),), home()),
)

LANCE_COMPUTED_ROWS: Final = (
    *COLUMN_ROWS,
    *INDEX_ROWS,
    *TRANSACTION_ROWS,
    *VIEW_ROWS,
    *JOB_ROWS,
    *FUNCTION_ROWS,
)
