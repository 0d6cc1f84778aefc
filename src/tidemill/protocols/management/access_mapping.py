"""Translates clients, keys, roles and grants from and to the JSON of the management API.

A grantee is one of the fields `client`, `user` and `role`; an object is one of `namespace`, `table` and
`function`, each a list of names. Tables are also views.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from tidemill.catalog.model.access import (
    DEFAULT_KEY,
    SETTINGS,
    ApiKey,
    Client,
    Grant,
    Grantee,
    GranteeKind,
    Role,
    check_grantee,
    kind_of,
)
from tidemill.catalog.model.callers import Permission, Scope
from tidemill.catalog.model.identifiers import FunctionIdent, Securable, namespace_path, table_ident
from tidemill.catalog.model.json_values import read_choice
from tidemill.catalog.operations.access import Identity, KeyRequest, NewKey
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call, without_nulls
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.management.mapping import time_text

OBJECTS: Final = ("namespace", "table", "function")
GRANTEES: Final = tuple(kind.value for kind in GranteeKind)
KEY_FIELDS: Final = ("name", "permissions", "namespace", "expires_in_seconds")
MAX_LIFETIME_SECONDS: Final = 100 * 366 * 86_400


def key_request(fields: Fields | None) -> KeyRequest:
    if fields is None:
        return KeyRequest()
    fields.refuse_unknown(KEY_FIELDS)
    name = fields.text("name") or DEFAULT_KEY
    permissions = _permissions(fields) if fields.has("permissions") else None
    path = namespace_path(fields.texts("namespace") or (), fields.name_of("namespace"))
    scope = None if permissions is None and path.is_root else Scope(permissions, path)
    seconds = fields.integer("expires_in_seconds", 1)
    if seconds is not None and seconds > MAX_LIFETIME_SECONDS:
        raise InvalidInput(
            fields.name_of("expires_in_seconds"),
            f"must be at most {MAX_LIFETIME_SECONDS}; leave it out for a key that does not expire",
        )
    return KeyRequest(name, scope, None if seconds is None else timedelta(seconds=seconds))


def grant_request(fields: Fields) -> tuple[Grantee, frozenset[Permission], Securable]:
    fields.refuse_unknown((*GRANTEES, *OBJECTS, "permissions"))
    kind = _only(fields, GRANTEES)
    grantee = check_grantee(Grantee(GranteeKind(kind), fields.required_text(kind)), kind)
    return grantee, _permissions(fields), _object(fields, _only(fields, OBJECTS))


def grantee_of_query(call: Call) -> Grantee | None:
    given = [kind for kind in GRANTEES if call.query.get(kind)]
    if len(given) > 1:
        raise InvalidInput(given[1], f"cannot be combined with {given[0]}")
    return Grantee(GranteeKind(given[0]), call.query[given[0]]) if given else None


def _only(fields: Fields, names: tuple[str, ...]) -> str:
    given = [name for name in names if fields.has(name)]
    if len(given) != 1:
        raise InvalidInput(fields.name_of(names[0]), f"give exactly one of {', '.join(names)}")
    return given[0]


def _object(fields: Fields, kind: str) -> Securable:
    levels = fields.texts(kind) or ()
    if kind == "namespace":
        return namespace_path(levels, kind)
    ident = table_ident(levels, kind)
    return ident if kind == "table" else FunctionIdent(ident.namespace, ident.name)


def _permissions(fields: Fields) -> frozenset[Permission]:
    field = fields.name_of("permissions")
    names = fields.texts("permissions")
    if not names:
        raise InvalidInput(field, f"is missing; name at least one of {', '.join(Permission)}")
    return frozenset(read_choice(Permission, name, field) for name in names)


def client_json(client: Client) -> dict[str, Any]:
    return {
        "client": client.client_id,
        "description": client.description,
        "created_by": client.created_by,
        "created_at": time_text(client.created_at),
        "in_settings": client.created_by == SETTINGS and client.created_at is None,
    }


def key_json(key: ApiKey) -> dict[str, Any]:
    return {
        "client": key.client_id,
        "name": key.name,
        "scope": scope_json(key.scope),
        "created_at": time_text(key.created_at),
        "expires_at": time_text(key.expires_at),
        "last_used_at": time_text(key.last_used_at),
    }


def new_key_json(new: NewKey) -> dict[str, Any]:
    return {**key_json(new.key), "secret": new.secret, "api_key": f"{new.key.client_id}:{new.secret}"}


def scope_json(scope: Scope | None) -> dict[str, Any] | None:
    if scope is None:
        return None
    permissions = None if scope.permissions is None else sorted(scope.permissions)
    return {"permissions": permissions, "namespace": list(scope.namespace.levels)}


def role_json(role: Role) -> dict[str, Any]:
    return {
        "role": role.name,
        "description": role.description,
        "members": list(role.members),
        "created_by": role.created_by,
        "created_at": time_text(role.created_at),
    }


def grant_json(grant: Grant) -> Mapping[str, Any]:
    return without_nulls(
        {
            grant.grantee.kind.value: grant.grantee.name,
            "permission": grant.permission.value,
            kind_of(grant.resource): list(grant.resource.levels),
            "granted_by": grant.granted_by,
            "granted_at": time_text(grant.granted_at),
        }
    )


def identity_json(identity: Identity) -> dict[str, Any]:
    caller = identity.caller
    return {
        "principal": caller.principal,
        "authentication": identity.has_authentication,
        "roles": list(identity.roles),
        "grants": [grant_json(grant) for grant in identity.grants],
        "key": caller.key or None,
        "scope": scope_json(caller.scope),
        "expires_at": time_text(caller.expires_at),
    }
