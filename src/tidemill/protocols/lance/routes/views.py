"""Routes of materialized views."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.protocols.http.call import Call
from tidemill.protocols.http.job_requests import idempotency_key, refresh_request
from tidemill.protocols.http.responses import json_response, without_nulls
from tidemill.protocols.http.routing import BodyKind, Route
from tidemill.protocols.lance.derived_mapping import view_definition
from tidemill.protocols.lance.requests import table_request


def create_materialized_view(call: Call) -> Response:
    ident, body = table_request(call)
    created = call.operations.views.create(call.caller, ident, view_definition(body))
    return json_response(without_nulls({"version": created.version, "job_id": created.job_id}), 201)


def refresh_materialized_view(call: Call) -> Response:
    ident, body = table_request(call)
    request = refresh_request(body)
    job = call.operations.jobs.submit_refresh(call.caller, ident, request, idempotency_key(call))
    return json_response({"job_id": job.job_id}, 202)


ROUTES: Final = (
    Route("POST", "/v1/materialized_view/{id}/create", create_materialized_view, BodyKind.ENVELOPE),
    Route("POST", "/v1/materialized_view/{id}/refresh", refresh_materialized_view),
)
