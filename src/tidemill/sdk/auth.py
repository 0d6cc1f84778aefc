"""Who may do what on a server: clients and their API keys, roles, and grants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from urllib.parse import quote

from tidemill.sdk.http import ServerClient
from tidemill.sdk.names import Name, dotted, levels_of, namespace_levels

PermissionName = Literal["read", "write", "manage", "compute", "function", "admin"]
GRANTEES: Final = ("client", "user", "role")
OBJECTS: Final = ("namespace", "table", "function")
PATH: Final = "/api/v1/auth"
TOKENS: Final = "/iceberg/v1/oauth/tokens"


@dataclass(frozen=True, slots=True)
class GrantInfo:
    """One permission of a client, user or role on a namespace, a table or view, or a function.

    `granted_at` is None for grants in the settings of the server.
    """

    grantee_kind: str
    grantee: str
    permission: str
    object_kind: str
    object: tuple[str, ...]
    granted_by: str
    granted_at: datetime | None

    def __str__(self) -> str:
        place = dotted(self.object) or "(root)"
        return f"{self.grantee_kind} {self.grantee}: {self.permission} on {self.object_kind} {place}"


@dataclass(frozen=True, slots=True)
class KeyScope:
    """What a key is restricted to, besides the grants of its client."""

    permissions: tuple[str, ...] | None
    namespace: tuple[str, ...]

    def __str__(self) -> str:
        permissions = "all permissions" if self.permissions is None else ", ".join(self.permissions)
        return f"{permissions} in {dotted(self.namespace) or '(root)'}"


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """An API key, without its secret."""

    client: str
    name: str
    scope: KeyScope | None
    created_at: datetime | None
    expires_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key that was just made. `api_key` is the credential; the server cannot show it again."""

    client: str
    name: str
    api_key: str = field(repr=False)
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ClientInfo:
    client: str
    description: str
    created_by: str
    created_at: datetime | None
    in_settings: bool


@dataclass(frozen=True, slots=True)
class RoleInfo:
    role: str
    description: str
    members: tuple[str, ...]
    created_by: str
    created_at: datetime | None


@dataclass(frozen=True, slots=True)
class Whoami:
    """The caller as the server sees it. Without `authentication`, everybody may do everything."""

    principal: str
    authentication: bool
    roles: tuple[str, ...]
    grants: tuple[GrantInfo, ...]
    key: str | None
    scope: KeyScope | None
    expires_at: datetime | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Auth:
    """Access to a server, as `lake.auth`.

    Every credential of a client works with all protocols. Changes take effect on every server within two
    seconds.
    """

    def __init__(self, client: ServerClient) -> None:
        self._client = client

    def whoami(self) -> Whoami:
        """Who the caller is, and what it is granted.

        >>> lake.auth.whoami().principal
        'local'
        """
        body = self._client.get(f"{PATH}/whoami")
        return Whoami(
            principal=body["principal"],
            authentication=body["authentication"],
            roles=tuple(body["roles"]),
            grants=tuple(map(_grant, body["grants"])),
            key=body.get("key"),
            scope=_scope(body.get("scope")),
            expires_at=_time(body.get("expires_at")),
        )

    def create_client(
        self,
        client: str,
        *,
        description: str = "",
        key: str = "default",
        permissions: Iterable[PermissionName] | None = None,
        namespace: Name | None = None,
        expires_in: timedelta | None = None,
    ) -> NewApiKey:
        """Creates a client without grants, and its first key; needs `admin` on the root.

        Args:
            client: Its id.
            description: What it is for.
            key: The name of the key; `permissions`, `namespace` and `expires_in` are those of `create_key`.
        """
        request = _key_request(key, permissions, namespace, expires_in)
        body = {"client": client, "description": description, "key": request}
        return _new_key(self._client.post(f"{PATH}/clients", body)["key"])

    def list_clients(self) -> list[ClientInfo]:
        """The clients of the catalog and of the settings; needs `admin` on the root."""
        return [
            ClientInfo(**{**item, "created_at": _time(item["created_at"])})
            for item in self._client.get(f"{PATH}/clients")["clients"]
        ]

    def remove_client(self, client: str) -> None:
        """Removes a client with its keys, grants and roles."""
        self._client.delete(_path("clients", client))

    def create_key(
        self,
        client: str,
        name: str,
        *,
        permissions: Iterable[PermissionName] | None = None,
        namespace: Name | None = None,
        expires_in: timedelta | None = None,
    ) -> NewApiKey:
        """Creates another key of a client. Clients can do this for themselves.

        Args:
            client: The id of the client.
            name: What the key is for, without spaces, such as `"nightly-load"`.
            permissions: Restricts the key to these permissions; by default it has all of its client.
            namespace: Restricts the key to this namespace and what is below it.
            expires_in: How long it lasts; forever by default.
        """
        request = _key_request(name, permissions, namespace, expires_in)
        return _new_key(self._client.post(_path("clients", client, "keys"), request))

    def list_keys(self, client: str) -> list[KeyInfo]:
        """The keys of a client, without their secrets."""
        return [_key(item) for item in self._client.get(_path("clients", client, "keys"))["keys"]]

    def remove_key(self, client: str, name: str) -> None:
        """Removes a key; requests with it, and with tokens that were issued for it, are refused."""
        self._client.delete(_path("clients", client, "keys", name))

    def create_role(self, role: str, *, description: str = "") -> RoleInfo:
        """Creates a role, which clients and users can have; needs `admin` on the root."""
        return _role(self._client.post(f"{PATH}/roles", {"role": role, "description": description}))

    def list_roles(self) -> list[RoleInfo]:
        """All roles with their members; needs `admin` on the root."""
        return [_role(item) for item in self._client.get(f"{PATH}/roles")["roles"]]

    def remove_role(self, role: str) -> None:
        """Removes a role and what it is granted."""
        self._client.delete(_path("roles", role))

    def add_member(self, role: str, member: str) -> RoleInfo:
        """Gives a role to a client, or to a user as `whoami` shows it (`<issuer>:<subject>`)."""
        return _role(self._client.put(_path("roles", role, "members", member), {}))

    def remove_member(self, role: str, member: str) -> RoleInfo:
        """Takes a role from a client or user."""
        return _role(self._client.delete(_path("roles", role, "members", member)))

    def grant(
        self,
        permissions: PermissionName | Iterable[PermissionName],
        *,
        client: str | None = None,
        user: str | None = None,
        role: str | None = None,
        namespace: Name | None = None,
        table: Name | None = None,
        function: Name | None = None,
    ) -> None:
        """Grants permissions on an object; needs `admin` on it or on a namespace above it.

        Args:
            permissions: One or more of `read`, `write`, `manage`, `compute`, `function` and `admin`.
            client: To whom: one of `client`, `user` and `role`.
            user: A user of an OIDC issuer, as `whoami` shows it.
            role: The name of a role.
            namespace: On what: one of `namespace`, `table` and `function`. `[]` is the root.
            table: A table or view of either format.
            function: A function.
        """
        grantee = {"client": client, "user": user, "role": role}
        objects = {"namespace": namespace, "table": table, "function": function}
        self._client.post(f"{PATH}/grants", _grant_request(permissions, grantee, objects))

    def revoke(
        self,
        permissions: PermissionName | Iterable[PermissionName],
        *,
        client: str | None = None,
        user: str | None = None,
        role: str | None = None,
        namespace: Name | None = None,
        table: Name | None = None,
        function: Name | None = None,
    ) -> int:
        """Takes permissions back; returns how many of them there were. The arguments are those of `grant`."""
        grantee = {"client": client, "user": user, "role": role}
        objects = {"namespace": namespace, "table": table, "function": function}
        request = _grant_request(permissions, grantee, objects)
        return int(self._client.post(f"{PATH}/grants/revoke", request)["revoked"])

    def list_grants(
        self, *, client: str | None = None, user: str | None = None, role: str | None = None
    ) -> list[GrantInfo]:
        """The grants on everything that the caller administers, and the caller's own."""
        query = {"client": client, "user": user, "role": role}
        return [_grant(item) for item in self._client.get(f"{PATH}/grants", query)["grants"]]

    def token(self) -> tuple[str, timedelta]:
        """A bearer token for the credential of this connection, and how long it is valid."""
        client, _, secret = (self._client.api_key or "").partition(":")
        form = {"grant_type": "client_credentials", "client_id": client, "client_secret": secret}
        body = self._client.post_form(TOKENS, form)
        return str(body["access_token"]), timedelta(seconds=body["expires_in"])


def _path(*segments: str) -> str:
    return "/".join([PATH, *(quote(segment, safe="") for segment in segments)])


def _key_request(
    name: str,
    permissions: Iterable[str] | None,
    namespace: Name | None,
    expires_in: timedelta | None,
) -> dict[str, Any]:
    return {
        "name": name,
        "permissions": None if permissions is None else list(permissions),
        "namespace": list(namespace_levels(namespace)) or None,
        "expires_in_seconds": None if expires_in is None else int(expires_in.total_seconds()),
    }


def _grant_request(
    permissions: str | Iterable[str], grantee: Mapping[str, str | None], objects: Mapping[str, Name | None]
) -> dict[str, Any]:
    to = {kind: name for kind, name in grantee.items() if name is not None}
    on = {kind: name for kind, name in objects.items() if name is not None}
    if len(to) != 1:
        raise TypeError("give exactly one of client=, user= and role=")
    if len(on) != 1:
        raise TypeError("give exactly one of namespace=, table= and function=")
    [(kind, name)] = on.items()
    levels: Sequence[str] = namespace_levels(name) if kind == "namespace" else levels_of(name)
    names = [permissions] if isinstance(permissions, str) else list(permissions)
    return {**to, kind: list(levels), "permissions": names}


def _grant(body: Mapping[str, Any]) -> GrantInfo:
    grantee_kind = next(kind for kind in GRANTEES if kind in body)
    object_kind = next(kind for kind in OBJECTS if kind in body)
    return GrantInfo(
        grantee_kind=grantee_kind,
        grantee=body[grantee_kind],
        permission=body["permission"],
        object_kind=object_kind,
        object=tuple(body[object_kind]),
        granted_by=body["granted_by"],
        granted_at=_time(body.get("granted_at")),
    )


def _scope(body: Mapping[str, Any] | None) -> KeyScope | None:
    if body is None:
        return None
    permissions = body["permissions"]
    return KeyScope(None if permissions is None else tuple(permissions), tuple(body["namespace"]))


def _key(body: Mapping[str, Any]) -> KeyInfo:
    times = {name: _time(body[name]) for name in ("created_at", "expires_at", "last_used_at")}
    return KeyInfo(body["client"], body["name"], _scope(body["scope"]), **times)


def _new_key(body: Mapping[str, Any]) -> NewApiKey:
    return NewApiKey(body["client"], body["name"], body["api_key"], _time(body["expires_at"]))


def _role(body: Mapping[str, Any]) -> RoleInfo:
    return RoleInfo(**{**body, "members": tuple(body["members"]), "created_at": _time(body["created_at"])})


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
