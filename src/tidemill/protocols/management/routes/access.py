"""Routes of clients, API keys, roles and grants, and of who the caller is."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.http.routing import Route
from tidemill.protocols.management.access_mapping import (
    client_json,
    grant_json,
    grant_request,
    grantee_of_query,
    identity_json,
    key_json,
    key_request,
    new_key_json,
    role_json,
)


def whoami(call: Call) -> Response:
    return json_response(identity_json(call.operations.access.whoami(call.caller)))


def list_clients(call: Call) -> Response:
    clients = call.operations.access.list_clients(call.caller)
    return json_response({"clients": [client_json(client) for client in clients]})


def create_client(call: Call) -> Response:
    fields = read_object(call.body)
    fields.refuse_unknown(("client", "description", "key"))
    client, key = call.operations.access.create_client(
        call.caller,
        fields.required_text("client"),
        fields.text("description") or "",
        key_request(fields.nested("key")),
    )
    return _secret_response({**client_json(client), "key": new_key_json(key)})


def remove_client(call: Call) -> Response:
    call.operations.access.remove_client(call.caller, call.parameters["client"])
    return json_response({})


def list_keys(call: Call) -> Response:
    keys = call.operations.access.list_keys(call.caller, call.parameters["client"])
    return json_response({"keys": [key_json(key) for key in keys]})


def create_key(call: Call) -> Response:
    request = key_request(read_object(call.body))
    key = call.operations.access.create_key(call.caller, call.parameters["client"], request)
    return _secret_response(new_key_json(key))


def remove_key(call: Call) -> Response:
    call.operations.access.remove_key(call.caller, call.parameters["client"], call.parameters["key"])
    return json_response({})


def list_roles(call: Call) -> Response:
    roles = call.operations.access.list_roles(call.caller)
    return json_response({"roles": [role_json(role) for role in roles]})


def create_role(call: Call) -> Response:
    fields = read_object(call.body)
    fields.refuse_unknown(("role", "description"))
    role = call.operations.access.create_role(
        call.caller, fields.required_text("role"), fields.text("description") or ""
    )
    return json_response(role_json(role))


def remove_role(call: Call) -> Response:
    call.operations.access.remove_role(call.caller, call.parameters["role"])
    return json_response({})


def add_member(call: Call) -> Response:
    role, member = call.parameters["role"], call.parameters["member"]
    return json_response(role_json(call.operations.access.add_member(call.caller, role, member)))


def remove_member(call: Call) -> Response:
    role, member = call.parameters["role"], call.parameters["member"]
    return json_response(role_json(call.operations.access.remove_member(call.caller, role, member)))


def list_grants(call: Call) -> Response:
    grants = call.operations.access.list_grants(call.caller, grantee_of_query(call))
    return json_response({"grants": [grant_json(grant) for grant in grants]})


def grant(call: Call) -> Response:
    call.operations.access.grant(call.caller, *grant_request(read_object(call.body)))
    return json_response({})


def revoke(call: Call) -> Response:
    revoked = call.operations.access.revoke(call.caller, *grant_request(read_object(call.body)))
    return json_response({"revoked": revoked})


def _secret_response(body: dict[str, Any]) -> Response:
    response = json_response(body)
    response.headers["cache-control"] = "no-store"
    return response


ROUTES: Final = (
    Route("GET", "/api/v1/auth/whoami", whoami),
    Route("GET", "/api/v1/auth/clients", list_clients),
    Route("POST", "/api/v1/auth/clients", create_client),
    Route("DELETE", "/api/v1/auth/clients/{client}", remove_client),
    Route("GET", "/api/v1/auth/clients/{client}/keys", list_keys),
    Route("POST", "/api/v1/auth/clients/{client}/keys", create_key),
    Route("DELETE", "/api/v1/auth/clients/{client}/keys/{key}", remove_key),
    Route("GET", "/api/v1/auth/roles", list_roles),
    Route("POST", "/api/v1/auth/roles", create_role),
    Route("DELETE", "/api/v1/auth/roles/{role}", remove_role),
    Route("PUT", "/api/v1/auth/roles/{role}/members/{member}", add_member),
    Route("DELETE", "/api/v1/auth/roles/{role}/members/{member}", remove_member),
    Route("GET", "/api/v1/auth/grants", list_grants),
    Route("POST", "/api/v1/auth/grants", grant),
    Route("POST", "/api/v1/auth/grants/revoke", revoke),
)
