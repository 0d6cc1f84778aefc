"""Routes of functions."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.functions import decode_envelope
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.http.routing import BodyKind, Route
from tidemill.protocols.management.mapping import function_json


def list_functions(call: Call) -> Response:
    functions = call.operations.functions.list_all(call.caller)
    return json_response({"functions": [function_json(function) for function in functions]})


def register_function(call: Call) -> Response:
    function = call.operations.functions.register(call.caller, decode_envelope(call.body, "body"))
    return json_response(function_json(function))


ROUTES: Final = (
    Route("GET", "/api/v1/functions", list_functions),
    Route("POST", "/api/v1/functions", register_function, BodyKind.ENVELOPE),
)
