"""The token route: OAuth2 client credentials and token exchange, with OAuth2's own error format."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.responses import Response

from tidemill.catalog.auditing import note_failure, note_principal
from tidemill.errors import InvalidInput, Unauthenticated
from tidemill.protocols.http.call import Call, json_response, without_nulls
from tidemill.protocols.http.operations import ClientCredential, IssuedToken
from tidemill.protocols.http.routing import Route

CLIENT_CREDENTIALS: Final = "client_credentials"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
TOKEN_TYPES: Final = (ACCESS_TOKEN, "urn:ietf:params:oauth:token-type:jwt")
# RFC 6749, 3.3.
SCOPE: Final = re.compile(r"[!#-\[\]-~]+( [!#-\[\]-~]+)*")
MAX_FIELDS: Final = 100

Form = Mapping[str, str]


class _OAuthError(Exception):
    """RFC 6749, 5.2: an error code and a description for people."""

    def __init__(self, error: str, description: str, status: int = 400) -> None:
        super().__init__(description)
        self.error = error
        self.status = status


def get_token(call: Call) -> Response:
    try:
        form = _form(call.body)
        scope = _scope(form)
        issued = _issue(call, form)
    except _OAuthError as error:
        return _error_response(error)
    body = {
        "access_token": issued.value,
        "token_type": "bearer",
        "expires_in": int(issued.lifetime.total_seconds()),
        "issued_token_type": ACCESS_TOKEN,
        "scope": scope,
    }
    return _not_cached(json_response(without_nulls(body)))


def _issue(call: Call, form: Form) -> IssuedToken:
    grant_type, credential = _grant_type(form), _credential(form, call.headers)
    try:
        if grant_type == CLIENT_CREDENTIALS:
            issued = call.operations.tokens.issue(credential, call.address)
        else:
            issued = call.operations.tokens.exchange(_subject_token(form), credential, call.address)
    except Unauthenticated as error:
        note_failure(error.code.value)
        raise _OAuthError("invalid_client", str(error), 401) from error
    except InvalidInput as error:
        raise _OAuthError("invalid_grant", str(error)) from error
    note_principal(issued.principal)
    return issued


def _grant_type(form: Form) -> str:
    known = f"{CLIENT_CREDENTIALS} or {TOKEN_EXCHANGE}"
    given = form.get("grant_type")
    if given is None:
        raise _OAuthError("invalid_request", f"grant_type is missing; use {known}")
    if given not in (CLIENT_CREDENTIALS, TOKEN_EXCHANGE):
        raise _OAuthError("unsupported_grant_type", f"grant_type: {given!r:.100} is not {known}")
    return given


def _subject_token(form: Form) -> str:
    for name in ("subject_token", "subject_token_type"):
        if name not in form:
            raise _OAuthError("invalid_request", f"{name} is missing")
    for name in ("subject_token_type", "requested_token_type"):
        if form.get(name, ACCESS_TOKEN) not in TOKEN_TYPES:
            problem = f"{form[name]!r:.100} is not {' or '.join(TOKEN_TYPES)}"
            raise _OAuthError("invalid_request", f"{name}: {problem}")
    return form["subject_token"]


def _credential(form: Form, headers: Headers) -> ClientCredential | None:
    if "client_id" in form or "client_secret" in form:
        return ClientCredential(form.get("client_id", ""), form.get("client_secret", ""))
    scheme, _, encoded = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        client_id, _, secret = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError as error:
        raise _OAuthError(
            "invalid_client", "authorization: Basic needs base64 of '<client id>:<secret>'", 401
        ) from error
    return ClientCredential(client_id, secret)


def _scope(form: Form) -> str | None:
    """The scope is only echoed: a client's grants decide what it may do."""
    scope = form.get("scope")
    if scope is not None and not SCOPE.fullmatch(scope):
        raise _OAuthError("invalid_scope", "scope: must be words separated by single spaces")
    return scope


def _form(body: bytes) -> Form:
    """RFC 6749, 3.2: parameters without a value count as omitted, and none may be repeated."""
    try:
        fields = parse_qsl(body.decode(), errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise _OAuthError("invalid_request", "The body is not application/x-www-form-urlencoded") from error
    form = dict(fields)
    if len(form) != len(fields):
        raise _OAuthError("invalid_request", "The body repeats a parameter")
    return form


def _error_response(error: _OAuthError) -> Response:
    body: dict[str, Any] = {"error": error.error, "error_description": str(error)}
    response = _not_cached(json_response(body, error.status))
    if error.status == 401:
        response.headers["www-authenticate"] = 'Basic realm="tidemill"'
    return response


def _not_cached(response: Response) -> Response:
    response.headers["cache-control"] = "no-store"
    return response


ROUTES: Final = (Route("POST", "/iceberg/v1/oauth/tokens", get_token, is_public=True),)
