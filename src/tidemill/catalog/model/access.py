"""Clients, API keys, roles and grants: who may do what, as the catalog stores it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final

from tidemill.catalog.model.callers import OWN_PRINCIPALS, Permission, Scope
from tidemill.catalog.model.identifiers import NamespacePath, Securable
from tidemill.errors import InvalidInput

# Characters that pass unchanged through a header, before and after a colon.
CLIENT_ID: Final = re.compile(r"[!-9;-~]{1,128}")
ENTRY_NAME: Final = re.compile(r"[!-~]{1,128}")
KEY_SECRET: Final = re.compile(r"tm_(?P<key_id>[0-9a-f]{16})_[A-Za-z0-9_-]{43}")
SECRET_BYTES: Final = 32
MAX_PRINCIPAL_LENGTH: Final = 512
DEFAULT_KEY: Final = "default"
SETTINGS: Final = "settings"
"""Stands for whoever made a grant or a client in the settings."""


class GranteeKind(StrEnum):
    """A client of this server, a user of an OIDC issuer, or a role that both can have."""

    CLIENT = "client"
    USER = "user"
    ROLE = "role"


@dataclass(frozen=True, slots=True, order=True)
class Grantee:
    kind: GranteeKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}"


def principal_grantee(principal: str) -> Grantee:
    """The names of users contain a colon, which those of clients cannot."""
    return Grantee(GranteeKind.USER if ":" in principal else GranteeKind.CLIENT, principal)


def role_grantee(role: str) -> Grantee:
    return Grantee(GranteeKind.ROLE, role)


@dataclass(frozen=True, slots=True)
class Grant:
    """One permission of one grantee on one object. `granted_at` is None for grants in the settings."""

    grantee: Grantee
    permission: Permission
    resource: Securable
    granted_by: str = SETTINGS
    granted_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """A program or a person that calls with API keys. `created_at` is None for clients in the settings."""

    client_id: str
    description: str = ""
    created_by: str = SETTINGS
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A credential of a client. The secret itself is not stored."""

    key_id: str
    client_id: str
    name: str
    digest: bytes = field(repr=False)
    scope: Scope | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    description: str = ""
    created_by: str = ""
    created_at: datetime | None = None
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessState:
    """Everything that authentication and authorization read from the catalog.

    It is at least as new as `revision`. `roles` are those of each principal.
    """

    revision: int = 0
    keys: Sequence[ApiKey] = ()
    roles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    grants: Sequence[Grant] = ()


def new_secret() -> tuple[str, str]:
    """The id of a new key, and its secret, which contains the id so that the key can be found by it."""
    key_id = secrets.token_hex(8)
    return key_id, f"tm_{key_id}_{secrets.token_urlsafe(SECRET_BYTES)}"


def digest_of(secret: str) -> bytes:
    """A plain hash suffices: nobody can try out 2^256 secrets. See decision 41."""
    return sha256(secret.encode()).digest()


def key_id_of(secret: str) -> str | None:
    """The id of the key that the secret is for; None if it is not a secret of the catalog's clients."""
    match = KEY_SECRET.fullmatch(secret)
    return match["key_id"] if match else None


def check_client_id(client_id: str, field: str) -> str:
    if not CLIENT_ID.fullmatch(client_id):
        problem = "a client id must be 1 to 128 printable ASCII characters without spaces or colons"
        raise InvalidInput(field, f"{client_id!r:.60}: {problem}")
    if client_id in OWN_PRINCIPALS:
        raise InvalidInput(field, f"{client_id!r} is reserved for the server itself; use another id")
    return client_id


def check_entry_name(name: str, field: str) -> str:
    """The name of a role or of a key."""
    if not ENTRY_NAME.fullmatch(name):
        raise InvalidInput(field, f"{name!r:.60} must be 1 to 128 printable ASCII characters without spaces")
    return name


def check_grantee(grantee: Grantee, field: str) -> Grantee:
    match grantee.kind:
        case GranteeKind.CLIENT:
            check_client_id(grantee.name, field)
        case GranteeKind.ROLE:
            check_entry_name(grantee.name, field)
        case GranteeKind.USER:
            is_printable = grantee.name.isprintable() and len(grantee.name) <= MAX_PRINCIPAL_LENGTH
            if ":" not in grantee.name or not is_printable:
                raise InvalidInput(
                    field, f"{grantee.name!r:.60} must be '<issuer>:<subject>', as whoami shows the user"
                )
    return grantee


def kind_of(resource: Securable) -> str:
    """What an object is called in messages and on the wire."""
    names = {"NamespacePath": "namespace", "TableIdent": "table", "FunctionIdent": "function"}
    return names[type(resource).__name__]


def namespace_of(resource: Securable) -> NamespacePath:
    """The namespace whose grants apply. A grant on a namespace does not cover a table of the same name."""
    return resource if isinstance(resource, NamespacePath) else resource.namespace
