"""Routes of rows: tables from Arrow streams, inserts, queries, counts."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.namespaces import CreateMode
from tidemill.catalog.model.tables import InsertMode
from tidemill.protocols.http.arrow import read_stream
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import read_choice
from tidemill.protocols.http.identifiers import table_of
from tidemill.protocols.http.job_requests import require_main_branch
from tidemill.protocols.http.responses import arrow_file_response, json_response, without_nulls
from tidemill.protocols.http.routing import BodyKind, Route
from tidemill.protocols.lance.mapping import refuse_chosen_storage, table_properties
from tidemill.protocols.lance.query_mapping import table_query
from tidemill.protocols.lance.requests import table_request


def create_table(call: Call) -> Response:
    ident = table_of(call)
    mode = read_choice(CreateMode, call.query.get("mode") or CreateMode.CREATE.value, "mode")
    properties = table_properties(call)
    refuse_chosen_storage(call)
    rows = read_stream(call.body, call.limits.decoded_arrow_bytes)
    created = call.operations.tables.create(call.caller, ident, rows, mode, properties)
    return json_response(
        without_nulls(
            {
                "location": created.table.location,
                "version": None if created.version is None else created.version.version,
                "properties": dict(created.table.properties),
            }
        )
    )


def insert_into_table(call: Call) -> Response:
    ident = table_of(call)
    require_main_branch(ident, call.query.get("branch"))
    mode = read_choice(InsertMode, call.query.get("mode") or InsertMode.APPEND.value, "mode")
    rows = read_stream(call.body, call.limits.decoded_arrow_bytes)
    written = call.operations.rows.insert(call.caller, ident, rows, mode)
    return json_response({"num_inserted_rows": written.rows, "version": written.version})


def query_table(call: Call) -> Response:
    ident, body = table_request(call)
    require_main_branch(ident, body.text("branch"))
    return arrow_file_response(call.operations.rows.query(call.caller, ident, table_query(body)))


def count_table_rows(call: Call) -> Response:
    ident, body = table_request(call)
    require_main_branch(ident, body.text("branch"))
    predicate = body.expression("predicate") if body.raw("predicate") != "" else None
    count = call.operations.rows.count_rows(call.caller, ident, predicate, body.integer("version", 1))
    return json_response(count)


ROUTES: Final = (
    Route("POST", "/v1/table/{id}/create", create_table, BodyKind.ARROW),
    Route("POST", "/v1/table/{id}/insert", insert_into_table, BodyKind.ARROW),
    Route("POST", "/v1/table/{id}/query", query_table),
    Route("POST", "/v1/table/{id}/count_rows", count_table_rows),
    # Older clients count with GET.
    Route("GET", "/v1/table/{id}/count_rows", count_table_rows),
)
