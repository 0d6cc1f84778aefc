"""Routes that register, deregister and rename tables."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.identifiers import NamespacePath, TableIdent, check_name, namespace_path
from tidemill.lance.model.tables import RegisterMode
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.http.identifiers import delimiter_of, split_id
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.mapping import properties_of, removed_table_json
from tidemill.protocols.lance.requests import table_request

# The name in the specification, and in lancedb's remote client.
NEW_NAMESPACE: Final = ("new_namespace_id", "new_namespace")


def register_table(call: Call) -> Response:
    ident, body = table_request(call)
    location, mode = body.required_text("location"), body.choice("mode", RegisterMode.CREATE)
    table = call.operations.registrations.register(call.caller, ident, location, mode, properties_of(body))
    return json_response({"location": table.location, "properties": dict(table.properties)})


def deregister_table(call: Call) -> Response:
    ident, _ = table_request(call)
    return json_response(removed_table_json(call.operations.registrations.deregister(call.caller, ident)))


def rename_table(call: Call) -> Response:
    ident, body = table_request(call)
    name = body.required_text("new_table_name")
    check_name(name, "new_table_name")
    namespace = _new_namespace(call, body)
    target = TableIdent(ident.namespace if namespace is None else namespace, name)
    call.operations.registrations.rename(call.caller, ident, target)
    return json_response({})


def _new_namespace(call: Call, body: Fields) -> NamespacePath | None:
    """Reads a list of levels, or a string like an id in a path. None means the namespace stays the same."""
    for key in NEW_NAMESPACE:
        value = body.raw(key)
        if isinstance(value, str):
            return namespace_path(split_id(value, delimiter_of(call)), key)
        if value is not None:
            return namespace_path(body.texts(key) or (), key)
    return None


ROUTES: Final = (
    Route("POST", "/v1/table/{id}/register", register_table),
    Route("POST", "/v1/table/{id}/deregister", deregister_table),
    Route("POST", "/v1/table/{id}/rename", rename_table),
)
