"""Routes of secrets for lancedb's remote client. The specification has none."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from tidemill.catalog.model.functions import Secret
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.fields import Fields, namespace_of
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.requests import table_request


def create_secret(call: Call) -> Response:
    ident, body = table_request(call)
    return json_response(_secret_json(call.operations.secrets.create(call.caller, ident, _value(body))))


def alter_secret(call: Call) -> Response:
    ident, body = table_request(call)
    return json_response(_secret_json(call.operations.secrets.alter(call.caller, ident, _value(body))))


def describe_secret(call: Call) -> Response:
    ident, _ = table_request(call)
    return json_response(_secret_json(call.operations.secrets.describe(call.caller, ident)))


def drop_secret(call: Call) -> Response:
    ident, _ = table_request(call)
    call.operations.secrets.drop(call.caller, ident)
    return json_response({})


def list_secrets(call: Call) -> Response:
    secrets = call.operations.secrets.list_in(call.caller, namespace_of(call))
    return json_response({"secrets": [_secret_json(secret) for secret in secrets]})


def _value(body: Fields) -> str:
    """Unlike other fields, an invalid value is not shown in the error message."""
    value = body.raw("value")
    if not isinstance(value, str):
        raise InvalidInput("value", "is missing; it must be a string")
    return value


def _secret_json(secret: Secret) -> dict[str, Any]:
    return {
        "name": secret.ident.name,
        "namespace_path": list(secret.ident.namespace.levels),
        "created_at_millis": int(secret.created_at.timestamp() * 1000),
        "updated_at_millis": int(secret.updated_at.timestamp() * 1000),
    }


ROUTES: Final = (
    Route("POST", "/v1/secret/{id}/create", create_secret),
    Route("POST", "/v1/secret/{id}/alter", alter_secret),
    Route("POST", "/v1/secret/{id}/describe", describe_secret, is_reading=True),
    Route("POST", "/v1/secret/{id}/drop", drop_secret),
    Route("GET", "/v1/namespace/{id}/secret/list", list_secrets),
)
