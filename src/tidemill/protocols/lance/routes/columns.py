"""Routes of computed columns."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.errors import FunctionNotFound
from tidemill.catalog.model.functions import RegisteredFunction
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.http.identifiers import table_of
from tidemill.protocols.http.job_requests import backfill_request, idempotency_key, require_main_branch
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.http.routing import BodyKind, Route
from tidemill.protocols.lance.derived_mapping import column_declarations
from tidemill.protocols.lance.lancedb_functions import (
    bound_columns,
    function_reference,
    is_registration,
    stored_name,
)
from tidemill.protocols.lance.mapping import branch_of
from tidemill.protocols.lance.requests import table_request
from tidemill.protocols.lance.schema_mapping import (
    ARROW_START,
    arrow_schema,
    is_expression_request,
    new_columns,
)


def alter_table_add_columns(call: Call) -> Response:
    """Adds columns filled by an expression, empty columns, or computed columns."""
    if call.body.startswith(ARROW_START):
        ident, branch = table_of(call), call.query.get("branch") or MAIN_BRANCH
        fields = arrow_schema(call.body)
        version = call.operations.schemas.add_empty_columns(call.caller, ident, branch, fields)
        return json_response({"version": version})
    ident, body = table_request(call)
    if is_expression_request(body):
        branch = branch_of(call, body)
        version = call.operations.schemas.add_columns(call.caller, ident, branch, new_columns(body))
        return json_response({"version": version})
    require_main_branch(call, ident, body.text("branch"))
    if body.has("function"):
        declaration = bound_columns(body, _function(call, body))
        version = call.operations.columns.declare(call.caller, ident, [declaration])
        return json_response({"version": version})
    version = call.operations.columns.declare(call.caller, ident, column_declarations(body))
    return json_response({"version": version})


def _function(call: Call, body: Fields) -> RegisteredFunction:
    """The function version in the request. Its digest must be the one that the client was given."""
    ident, version, digest = function_reference(body)
    registered = call.operations.functions.get(call.caller, stored_name(ident), version)
    if registered.function.digest != digest or not is_registration(registered.function):
        raise FunctionNotFound(f"{stored_name(ident)} version {version} with object id {digest:.100}")
    return registered


def alter_table_backfill_columns(call: Call) -> Response:
    ident, body = table_request(call)
    request = backfill_request(body)
    job = call.operations.jobs.submit_backfill(call.caller, ident, request, idempotency_key(call))
    return json_response({"job_id": job.job_id}, 202)


ROUTES: Final = (
    Route("POST", "/v1/table/{id}/add_columns", alter_table_add_columns, BodyKind.ENVELOPE),
    Route("POST", "/v1/table/{id}/backfill_column", alter_table_backfill_columns),
)
