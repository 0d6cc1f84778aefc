"""Routes of functions and of package manifests: named environments for jobs."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.functions import decode_envelope
from tidemill.jobs.service.environments import environment_of
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.http.routing import BodyKind, Route
from tidemill.protocols.management.mapping import environment_json, function_json


def list_functions(call: Call) -> Response:
    functions = call.operations.functions.list_all(call.caller)
    return json_response({"functions": [function_json(function) for function in functions]})


def register_function(call: Call) -> Response:
    function = call.operations.functions.register(call.caller, decode_envelope(call.body, "body"))
    return json_response(function_json(function))


def list_manifests(call: Call) -> Response:
    environments = call.operations.environments.list_all(call.caller)
    return json_response(
        {"manifests": [environment_json(name, environment) for name, environment in environments]}
    )


def get_manifest(call: Call) -> Response:
    name = call.parameters["name"]
    return json_response(environment_json(name, call.operations.environments.get(call.caller, name)))


def put_manifest(call: Call) -> Response:
    name, environment = call.parameters["name"], environment_of(read_object(call.body).values, "")
    call.operations.environments.put(call.caller, name, environment)
    return json_response(environment_json(name, environment))


def drop_manifest(call: Call) -> Response:
    call.operations.environments.remove(call.caller, call.parameters["name"])
    return json_response({})


ROUTES: Final = (
    Route("GET", "/api/v1/functions", list_functions),
    Route("POST", "/api/v1/functions", register_function, BodyKind.ENVELOPE),
    Route("GET", "/api/v1/manifests", list_manifests),
    Route("GET", "/api/v1/manifests/{name}", get_manifest),
    Route("PUT", "/api/v1/manifests/{name}", put_manifest),
    Route("DELETE", "/api/v1/manifests/{name}", drop_manifest),
)
