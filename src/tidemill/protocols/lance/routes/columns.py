"""Routes of computed columns."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.protocols.http.call import Call
from tidemill.protocols.http.job_requests import backfill_request, idempotency_key, require_main_branch
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.http.routing import BodyKind, Route
from tidemill.protocols.lance.derived_mapping import column_declarations
from tidemill.protocols.lance.requests import table_request


def alter_table_add_columns(call: Call) -> Response:
    ident, body = table_request(call)
    require_main_branch(ident, body.text("branch"))
    version = call.operations.columns.declare(call.caller, ident, column_declarations(body))
    return json_response({"version": version})


def alter_table_backfill_columns(call: Call) -> Response:
    ident, body = table_request(call)
    request = backfill_request(ident, body)
    job = call.operations.jobs.submit_backfill(call.caller, ident, request, idempotency_key(call))
    return json_response({"job_id": job.job_id}, 202)


ROUTES: Final = (
    Route("POST", "/v1/table/{id}/add_columns", alter_table_add_columns, BodyKind.ENVELOPE),
    Route("POST", "/v1/table/{id}/backfill_column", alter_table_backfill_columns),
)
