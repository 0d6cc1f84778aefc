"""Routes that explain a backfill or refresh without running it."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.http.identifiers import table_of
from tidemill.protocols.http.job_requests import backfill_request, refresh_request
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.http.routing import Route
from tidemill.protocols.management.mapping import explanation_json


def explain_backfill(call: Call) -> Response:
    ident = table_of(call)
    request = backfill_request(read_object(call.body))
    return json_response(explanation_json(call.operations.explain.backfill(call.caller, ident, request)))


def explain_refresh(call: Call) -> Response:
    ident = table_of(call)
    request = refresh_request(read_object(call.body))
    return json_response(explanation_json(call.operations.explain.refresh(call.caller, ident, request)))


ROUTES: Final = (
    Route("POST", "/api/v1/tables/{id}/explain", explain_backfill),
    Route("POST", "/api/v1/views/{id}/explain", explain_refresh),
)
