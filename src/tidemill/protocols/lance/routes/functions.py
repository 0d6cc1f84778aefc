"""Routes of functions for lancedb's remote client. The specification has none."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.errors import FunctionNotFound
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.http.identifiers import namespace_of
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.http.routing import BodyKind, Route
from tidemill.protocols.lance.lancedb_functions import (
    is_listed,
    is_registration,
    job_id_of,
    registration,
    stored_name,
    version_json,
    version_number,
)
from tidemill.protocols.lance.requests import table_request


def create_function(call: Call) -> Response:
    """Registers at once. The job id in the response is that of a job that has already succeeded."""
    ident, body = table_request(call)
    if not ident.namespace.is_root:
        call.operations.namespaces.describe(call.caller, ident.namespace)
    function = call.operations.functions.register(call.caller, registration(ident, body))
    return json_response({"job_id": job_id_of(function)}, 202)


def describe_function(call: Call) -> Response:
    ident, body = table_request(call)
    name = stored_name(ident)
    registered = call.operations.functions.get(call.caller, name, _version(body))
    if not is_registration(registered.function):
        raise FunctionNotFound(name)
    return json_response(version_json(registered))


def drop_function(call: Call) -> Response:
    """Columns that use the function keep working. Dropping an unknown function succeeds."""
    ident, body = table_request(call)
    try:
        call.operations.functions.drop(call.caller, stored_name(ident), _version(body))
    except FunctionNotFound:
        return json_response({"dropped": False})
    return json_response({"dropped": True})


def list_functions(call: Call) -> Response:
    namespace = namespace_of(call)
    if not namespace.is_root:
        call.operations.namespaces.describe(call.caller, namespace)
    registered = call.operations.functions.list_registered(call.caller)
    listed = [version_json(item) for item in registered if is_listed(item, namespace)]
    return json_response({"functions": [{"definition": version} for version in listed]})


def _version(body: Fields) -> int:
    return version_number(body.required_text("version"), "version")


ROUTES: Final = (
    Route("POST", "/v1/function/{id}/create", create_function, BodyKind.ENVELOPE),
    Route("POST", "/v1/function/{id}/describe", describe_function),
    Route("POST", "/v1/function/{id}/drop", drop_function),
    Route("GET", "/v1/namespace/{id}/function/list", list_functions),
)
