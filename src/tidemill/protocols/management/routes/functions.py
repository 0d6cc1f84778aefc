"""Routes of functions and of package manifests: named environments for jobs."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.functions import received_function
from tidemill.catalog.model.identifiers import NamespacePath, namespace_path
from tidemill.jobs.service.environments import environment_of
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.fields import delimiter_of, read_object, split_id
from tidemill.protocols.http.routing import BodyKind, Route
from tidemill.protocols.management.mapping import environment_json, function_json, registered_json


def list_functions(call: Call) -> Response:
    """Those that the caller may read, of one namespace if the query names one."""
    named = _namespace(call)
    functions = call.operations.functions.list_registered(call.caller, named)
    return json_response({"functions": [registered_json(registered) for registered in functions]})


def register_function(call: Call) -> Response:
    """In the namespace that the query names, by default the root."""
    namespace = _namespace(call) or NamespacePath()
    function = received_function(call.body, "body")
    function = call.operations.functions.register(call.caller, function, namespace)
    return json_response(function_json(function, namespace))


def _namespace(call: Call) -> NamespacePath | None:
    joined = call.query.get("namespace")
    if joined is None:
        return None
    return namespace_path(split_id(joined, delimiter_of(call)), "namespace")


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
