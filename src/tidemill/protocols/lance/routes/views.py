"""Routes of materialized views."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.protocols.http.call import Call
from tidemill.protocols.http.identifiers import namespace_of
from tidemill.protocols.http.job_requests import idempotency_key, refresh_request
from tidemill.protocols.http.responses import json_response, without_nulls
from tidemill.protocols.http.routing import BodyKind, Route
from tidemill.protocols.lance.requests import table_request
from tidemill.protocols.lance.view_mapping import (
    described_view_json,
    is_sql_view,
    sql_view_definition,
    view_definition,
)


def create_materialized_view(call: Call) -> Response:
    """lancedb's client expects status 202 and a job id if the view is being filled."""
    ident, body = table_request(call)
    is_sql = is_sql_view(body)
    definition = sql_view_definition(body) if is_sql else view_definition(call, body, ident)
    created = call.operations.views.create(call.caller, ident, definition)
    body_json = without_nulls({"version": created.version, "job_id": created.job_id})
    return json_response(body_json, 202 if is_sql and created.job_id is not None else 201)


def refresh_materialized_view(call: Call) -> Response:
    ident, body = table_request(call)
    request = refresh_request(body)
    job = call.operations.jobs.submit_refresh(call.caller, ident, request, idempotency_key(call))
    return json_response({"job_id": job.job_id}, 202)


def describe_materialized_view(call: Call) -> Response:
    """For lancedb's client. The specification has no such operation."""
    ident, _ = table_request(call)
    described = call.operations.views.describe(call.caller, ident)
    version = call.operations.versions.find_latest(described.table)
    digests = {described.view.function_digest, *(column.function_digest for column in described.view.columns)}
    names = [
        registered.function.name
        for registered in (
            call.operations.functions.list_registered(call.caller) if digests != {None} else ()
        )
        if registered.function.digest in digests
    ]
    return json_response(described_view_json(described, None if version is None else version.version, names))


def drop_materialized_view(call: Call) -> Response:
    """Removes the files before it responds, so there is no job to wait for."""
    ident, _ = table_request(call)
    call.operations.views.describe(call.caller, ident)
    call.operations.tables.drop(call.caller, ident)
    return json_response({})


def list_materialized_views(call: Call) -> Response:
    listed = call.operations.views.list_in(call.caller, namespace_of(call))
    return json_response({"views": [described.table.ident.name for described in listed]})


ROUTES: Final = (
    Route("POST", "/v1/materialized_view/{id}/create", create_materialized_view, BodyKind.ENVELOPE),
    Route("POST", "/v1/materialized_view/{id}/refresh", refresh_materialized_view),
    Route("POST", "/v1/materialized_view/{id}/describe", describe_materialized_view),
    Route("POST", "/v1/materialized_view/{id}/drop", drop_materialized_view),
    Route("GET", "/v1/namespace/{id}/materialized_view/list", list_materialized_views),
)
