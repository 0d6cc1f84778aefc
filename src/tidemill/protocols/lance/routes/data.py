"""Routes of rows: create tables from Arrow streams, change rows, query, explain, count."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import orjson
from starlette.responses import Response

from tidemill.catalog.model.identifiers import CreateMode
from tidemill.catalog.model.json_values import read_choice
from tidemill.lance.model.tables import InsertMode
from tidemill.protocols.http.arrow import read_stream
from tidemill.protocols.http.call import Call, json_response, without_nulls
from tidemill.protocols.http.fields import Fields, query_integer, table_of
from tidemill.protocols.http.routing import BodyKind, Route
from tidemill.protocols.lance.geneva_jobs import JOBS_TABLE, job_rows
from tidemill.protocols.lance.mapping import (
    branch_of,
    check_storage_options,
    storage_options_of,
    table_location,
    table_properties,
)
from tidemill.protocols.lance.requests import table_request, with_version_header
from tidemill.protocols.lance.row_mapping import (
    arrow_file_response,
    delete_json,
    delete_predicate,
    explained_query,
    merge_json,
    optional_expression,
    row_merge,
    row_update,
    table_query,
    update_json,
)

NO_BODY: Final = Fields({})


def create_table(call: Call) -> Response:
    ident = table_of(call)
    mode = read_choice(CreateMode, call.query.get("mode") or CreateMode.CREATE.value, "mode")
    properties = table_properties(call)
    check_storage_options(call)
    rows = read_stream(call.body, call.limits.decoded_arrow_bytes)
    created = call.operations.tables.create(call.caller, ident, rows, mode, properties, table_location(call))
    return json_response(
        without_nulls(
            {
                "location": created.table.location,
                "version": None if created.version is None else created.version.version,
                "properties": dict(created.table.properties),
                "storage_options": storage_options_of(call, created.table),
            }
        )
    )


def insert_into_table(call: Call) -> Response:
    ident = table_of(call)
    mode = read_choice(InsertMode, call.query.get("mode") or InsertMode.APPEND.value, "mode")
    rows = read_stream(call.body, call.limits.decoded_arrow_bytes)
    written = call.operations.rows.insert(call.caller, ident, rows, mode, branch_of(call, NO_BODY))
    return json_response({"num_inserted_rows": written.rows, "version": written.version})


def merge_insert_into_table(call: Call) -> Response:
    ident, merge = table_of(call), row_merge(call)
    rows = read_stream(call.body, call.limits.decoded_arrow_bytes)
    result = call.operations.rows.merge(call.caller, ident, rows, merge, branch_of(call, NO_BODY))
    return json_response(merge_json(call, result))


def update_table(call: Call) -> Response:
    ident, body = table_request(call)
    result = call.operations.rows.update(call.caller, ident, row_update(body), branch_of(call, body))
    return json_response(update_json(call, result))


def delete_from_table(call: Call) -> Response:
    ident, body = table_request(call)
    result = call.operations.rows.delete(call.caller, ident, delete_predicate(body), branch_of(call, body))
    return json_response(delete_json(call, result))


def query_table(call: Call) -> Response:
    ident, body = table_request(call)
    query = table_query(body, branch_of(call, body))
    if ident == JOBS_TABLE:
        result = call.operations.rows.query_in_memory(call.caller, ident, job_rows(call, query.filter), query)
        return arrow_file_response(result)
    result = call.operations.rows.query(call.caller, ident, query)
    return with_version_header(call, arrow_file_response(result), result.version)


def explain_table_query_plan(call: Call) -> Response:
    ident, body = table_request(call)
    query, branch = explained_query(call, body)
    is_verbose = body.flag("verbose") or False
    plan = call.operations.rows.explain(call.caller, ident, table_query(query, branch), is_verbose=is_verbose)
    return json_response(plan)


def analyze_table_query_plan(call: Call) -> Response:
    ident, body = table_request(call)
    query = table_query(body, branch_of(call, body))
    return json_response(call.operations.rows.analyze(call.caller, ident, query))


def count_table_rows(call: Call) -> Response:
    ident, body = table_request(call)
    predicate, version = optional_expression(body, "predicate"), body.integer("version", 0)
    count, number = call.operations.rows.count_rows(
        call.caller, ident, predicate, version, branch_of(call, body)
    )
    return with_version_header(call, json_response(count), number)


def count_table_rows_by_query(call: Call) -> Response:
    """Older clients count with GET."""
    parameters = {"predicate": call.query.get("predicate"), "version": query_integer(call.query, "version")}
    return count_table_rows(replace(call, body=orjson.dumps(parameters)))


ROUTES: Final = (
    Route("POST", "/v1/table/{id}/create", create_table, BodyKind.ARROW),
    Route("POST", "/v1/table/{id}/insert", insert_into_table, BodyKind.ARROW),
    Route("POST", "/v1/table/{id}/merge_insert", merge_insert_into_table, BodyKind.ARROW),
    Route("POST", "/v1/table/{id}/update", update_table),
    Route("POST", "/v1/table/{id}/delete", delete_from_table),
    Route("POST", "/v1/table/{id}/query", query_table, is_reading=True),
    Route("POST", "/v1/table/{id}/explain_plan", explain_table_query_plan, is_reading=True),
    Route("POST", "/v1/table/{id}/analyze_plan", analyze_table_query_plan, is_reading=True),
    Route("POST", "/v1/table/{id}/count_rows", count_table_rows, is_reading=True),
    Route("GET", "/v1/table/{id}/count_rows", count_table_rows_by_query),
)
