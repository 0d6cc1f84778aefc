"""Routes of views: status, verification, row errors; and the lineage of tables and views."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.protocols.http.call import Call, json_response, without_nulls
from tidemill.protocols.http.fields import read_object, table_of
from tidemill.protocols.http.job_requests import idempotency_key, verify_request
from tidemill.protocols.http.routing import Route
from tidemill.protocols.management.mapping import (
    lineage_json,
    page_limit,
    row_error_json,
    row_token,
    view_status_json,
)
from tidemill.protocols.management.routes.columns import DEFAULT_ERRORS, MAX_ERRORS


def get_view_status(call: Call) -> Response:
    return json_response(view_status_json(call.operations.view_status.status(call.caller, table_of(call))))


def set_view_owner(call: Call) -> Response:
    body = read_object(call.body)
    body.refuse_unknown({"owner"})
    owner = body.required_text("owner")
    call.operations.views.set_owner(call.caller, table_of(call), owner)
    return json_response({"owner": owner})


def verify_view(call: Call) -> Response:
    ident = table_of(call)
    request = verify_request(read_object(call.body))
    job = call.operations.jobs.submit_verify(call.caller, ident, request, idempotency_key(call))
    return json_response({"job_id": job.job_id}, 202)


def list_view_errors(call: Call) -> Response:
    """Row ids are those of the source. The traceback says which of several functions failed."""
    limit = page_limit(call, DEFAULT_ERRORS, MAX_ERRORS)
    errors = call.operations.view_status.errors(
        call.caller,
        table_of(call),
        job_id=call.query.get("job_id") or None,
        after=row_token(call),
        limit=limit + 1,
    )
    page = errors[:limit]
    token = str(page[-1].failure.row_id) if len(errors) > limit else None
    return json_response(
        without_nulls({"errors": [row_error_json(None, error) for error in page], "page_token": token})
    )


def get_lineage(call: Call) -> Response:
    column = call.query.get("column") or None
    return json_response(lineage_json(call.operations.lineage.of(call.caller, table_of(call), column)))


ROUTES: Final = (
    Route("GET", "/api/v1/views/{id}/status", get_view_status),
    Route("POST", "/api/v1/views/{id}/owner", set_view_owner),
    Route("POST", "/api/v1/views/{id}/verify", verify_view),
    Route("GET", "/api/v1/views/{id}/errors", list_view_errors),
    Route("GET", "/api/v1/tables/{id}/lineage", get_lineage),
)
