"""Operations on clients, API keys, roles and grants.

Admins of the root make clients and roles. Whoever has the permission `admin` on an object grants and revokes
on it, and on all that is below it: a team with a namespace needs nobody else to let others in. A client makes
and removes its own keys, but none that can do more or lives longer than the credential that asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from tidemill.catalog.auditing import note_named, note_object
from tidemill.catalog.errors import ClientAlreadyExists
from tidemill.catalog.model.access import (
    DEFAULT_KEY,
    ApiKey,
    Client,
    Grant,
    Grantee,
    GranteeKind,
    Role,
    check_client_id,
    check_entry_name,
    check_grantee,
    digest_of,
    new_secret,
    principal_grantee,
    role_grantee,
)
from tidemill.catalog.model.audit import ObjectKind
from tidemill.catalog.model.callers import ROOT, Caller, Permission, Scope
from tidemill.catalog.model.identifiers import Securable
from tidemill.catalog.operations.visibility import can
from tidemill.catalog.ports import Authorizer, CatalogStore, CatalogTransaction
from tidemill.errors import InvalidInput, Unsupported


@dataclass(frozen=True, slots=True)
class SettingsAccess:
    """What the settings say about access. Without authentication, everybody may do everything."""

    has_authentication: bool
    clients: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()

    @property
    def has_admin(self) -> bool:
        return any(map(_is_root_admin, self.grants))


@dataclass(frozen=True, slots=True)
class KeyRequest:
    name: str = DEFAULT_KEY
    scope: Scope | None = None
    lifetime: timedelta | None = None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key and its secret, which nobody can read again."""

    key: ApiKey
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a caller is, and what it is granted itself or through its roles."""

    caller: Caller
    roles: Sequence[str]
    grants: Sequence[Grant]
    has_authentication: bool


class AccessOperations:
    """`on_change` is called after each change that was committed."""

    def __init__(
        self,
        store: CatalogStore,
        authorizer: Authorizer,
        settings: SettingsAccess,
        on_change: Callable[[], None],
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._settings = settings
        self._on_change = on_change

    def whoami(self, caller: Caller) -> Identity:
        with self._store.reading() as tx:
            roles = sorted({*caller.roles, *tx.roles.list_of(caller.principal)})
            grants = self._grants_of(tx, _grantees(caller, roles))
        return Identity(caller, roles, grants, self._settings.has_authentication)

    def create_client(
        self, caller: Caller, client_id: str, description: str, key: KeyRequest
    ) -> tuple[Client, NewKey]:
        """A client without grants, with one key."""
        note_named(ObjectKind.CLIENT, client_id)
        self._authorizer.require(caller, Permission.ADMIN, ROOT)
        check_client_id(client_id, "client")
        if client_id in self._settings.clients:
            raise ClientAlreadyExists(client_id, " in the settings of the server")
        with self._changing() as tx:
            tx.clients.add(Client(client_id, description, caller.principal))
            return tx.clients.get(client_id), _add_key(tx, client_id, key)

    def list_clients(self, caller: Caller) -> Sequence[Client]:
        """Clients of the settings and of the catalog, sorted by id."""
        self._authorizer.require(caller, Permission.ADMIN, ROOT)
        with self._store.reading() as tx:
            found = {client.client_id: client for client in tx.clients.list_all()}
        found.update({client_id: Client(client_id) for client_id in self._settings.clients})
        return [found[client_id] for client_id in sorted(found)]

    def remove_client(self, caller: Caller, client_id: str) -> None:
        note_named(ObjectKind.CLIENT, client_id)
        self._authorizer.require(caller, Permission.ADMIN, ROOT)
        self._refuse_settings_client(client_id)
        with self._changing() as tx, self._keeping_an_admin(tx):
            tx.clients.remove(client_id)

    def create_key(self, caller: Caller, client_id: str, request: KeyRequest) -> NewKey:
        is_admin = self._authorize_keys(caller, client_id)
        self._refuse_settings_client(client_id)
        with self._changing() as tx:
            new = _add_key(tx, client_id, request)
            if not is_admin and _outlives(new.key, caller):
                raise InvalidInput(
                    "expires_in_seconds",
                    f"the new key must expire before this credential: {caller.expires_at}",
                )
            return new

    def list_keys(self, caller: Caller, client_id: str) -> Sequence[ApiKey]:
        self._authorize_keys(caller, client_id)
        self._refuse_settings_client(client_id)
        with self._store.reading() as tx:
            return tx.clients.list_keys(client_id)

    def remove_key(self, caller: Caller, client_id: str, name: str) -> None:
        self._authorize_keys(caller, client_id)
        self._refuse_settings_client(client_id)
        with self._changing() as tx:
            tx.clients.remove_key(client_id, name)

    def _authorize_keys(self, caller: Caller, client_id: str) -> bool:
        """Whether the caller is an admin, and not only the client itself with an unrestricted key."""
        note_named(ObjectKind.CLIENT, client_id)
        is_admin = can(self._authorizer, caller, Permission.ADMIN, ROOT)
        if not is_admin and (caller.principal != client_id or caller.scope is not None):
            self._authorizer.require(caller, Permission.ADMIN, ROOT)
        return is_admin

    def _refuse_settings_client(self, client_id: str) -> None:
        if client_id in self._settings.clients:
            raise InvalidInput(
                "client", f"{client_id} is in the settings of the server; change TIDEMILL_CLIENTS instead"
            )

    def create_role(self, caller: Caller, name: str, description: str) -> Role:
        note_named(ObjectKind.ROLE, name)
        self._authorizer.require(caller, Permission.ADMIN, ROOT)
        check_entry_name(name, "role")
        with self._changing() as tx:
            tx.roles.add(Role(name, description, caller.principal))
            return tx.roles.get(name)

    def list_roles(self, caller: Caller) -> Sequence[Role]:
        self._authorizer.require(caller, Permission.ADMIN, ROOT)
        with self._store.reading() as tx:
            return tx.roles.list_all()

    def remove_role(self, caller: Caller, name: str) -> None:
        note_named(ObjectKind.ROLE, name)
        self._authorizer.require(caller, Permission.ADMIN, ROOT)
        with self._changing() as tx, self._keeping_an_admin(tx):
            tx.roles.remove(name)

    def add_member(self, caller: Caller, role: str, principal: str) -> Role:
        note_named(ObjectKind.ROLE, role)
        note_named(ObjectKind.CLIENT, principal)
        self._authorizer.require(caller, Permission.ADMIN, ROOT)
        with self._changing() as tx:
            self._check_grantee(tx, principal_grantee(principal), "member")
            tx.roles.add_member(role, principal)
            return tx.roles.get(role)

    def remove_member(self, caller: Caller, role: str, principal: str) -> Role:
        note_named(ObjectKind.ROLE, role)
        note_named(ObjectKind.CLIENT, principal)
        self._authorizer.require(caller, Permission.ADMIN, ROOT)
        with self._changing() as tx:
            tx.roles.remove_member(role, principal)
            return tx.roles.get(role)

    def grant(
        self, caller: Caller, grantee: Grantee, permissions: Collection[Permission], resource: Securable
    ) -> None:
        """What is granted already stays as it is."""
        _note_grant(grantee, permissions, resource)
        self._authorizer.require(caller, Permission.ADMIN, resource)
        with self._changing() as tx:
            self._check_grantee(tx, grantee, grantee.kind.value)
            tx.grants.add([Grant(grantee, each, resource, caller.principal) for each in permissions])

    def revoke(
        self, caller: Caller, grantee: Grantee, permissions: Collection[Permission], resource: Securable
    ) -> int:
        """Returns how many grants there were. Refuses those of the settings."""
        _note_grant(grantee, permissions, resource)
        self._authorizer.require(caller, Permission.ADMIN, resource)
        revoked = [Grant(grantee, each, resource) for each in permissions]
        with self._changing() as tx, self._keeping_an_admin(tx):
            count = tx.grants.remove(revoked)
            if not count and any(grant in self._settings.grants for grant in revoked):
                raise InvalidInput(
                    "permissions", f"{grantee} has them from the settings; change those of the server instead"
                )
            return count

    def list_grants(self, caller: Caller, grantee: Grantee | None = None) -> Sequence[Grant]:
        """The caller's own grants, and those on what the caller administers."""
        with self._store.reading() as tx:
            own = _grantees(caller, {*caller.roles, *tx.roles.list_of(caller.principal)})
            found = self._grants_of(tx, None if grantee is None else [grantee])
        return [
            grant
            for grant in found
            if grant.grantee in own or can(self._authorizer, caller, Permission.ADMIN, grant.resource)
        ]

    def _grants_of(self, tx: CatalogTransaction, grantees: Collection[Grantee] | None) -> Sequence[Grant]:
        from_settings = [
            grant for grant in self._settings.grants if grantees is None or grant.grantee in grantees
        ]
        return [*from_settings, *tx.grants.list_all(grantees)]

    def _check_grantee(self, tx: CatalogTransaction, grantee: Grantee, field: str) -> None:
        """Users of an issuer are not known before they call."""
        check_grantee(grantee, field)
        if grantee.kind is GranteeKind.CLIENT and grantee.name not in self._settings.clients:
            tx.clients.get(grantee.name)
        if grantee.kind is GranteeKind.ROLE:
            tx.roles.get(grantee.name)

    @contextmanager
    def _changing(self) -> Iterator[CatalogTransaction]:
        if not self._settings.has_authentication:
            raise Unsupported(
                "This server has no authentication: whoever can connect may do everything. To manage access, "
                "restart it with a first admin in TIDEMILL_CLIENTS, such as "
                '{"admin": {"secret": "at least 16 characters"}}'
            )
        with self._store.transaction() as tx:
            yield tx
        self._on_change()

    @contextmanager
    def _keeping_an_admin(self, tx: CatalogTransaction) -> Iterator[None]:
        """Refuses a change after which nobody could change access any more."""
        had_admin = not self._settings.has_admin and _has_root_admin(tx)
        yield
        if had_admin and not _has_root_admin(tx):
            raise InvalidInput("grantee", "is the last admin of the root; grant it to somebody else first")


def _grantees(caller: Caller, roles: Collection[str]) -> list[Grantee]:
    return [principal_grantee(caller.principal), *map(role_grantee, roles)]


def _is_root_admin(grant: Grant) -> bool:
    return grant.permission is Permission.ADMIN and grant.resource == ROOT


def _has_root_admin(tx: CatalogTransaction) -> bool:
    return any(map(_is_root_admin, tx.grants.list_all()))


def _add_key(tx: CatalogTransaction, client_id: str, request: KeyRequest) -> NewKey:
    check_entry_name(request.name, "name")
    key_id, secret = new_secret()
    expires_at = None if request.lifetime is None else tx.now() + request.lifetime
    key = ApiKey(
        key_id, client_id, request.name, digest_of(secret), scope=request.scope, expires_at=expires_at
    )
    return NewKey(tx.clients.add_key(key), secret)


def _outlives(key: ApiKey, caller: Caller) -> bool:
    return caller.expires_at is not None and (key.expires_at is None or key.expires_at > caller.expires_at)


def _note_grant(grantee: Grantee, permissions: Collection[Permission], resource: Securable) -> None:
    is_role = grantee.kind is GranteeKind.ROLE
    note_named(ObjectKind.ROLE if is_role else ObjectKind.CLIENT, grantee.name)
    for permission in sorted(permissions):
        note_named(ObjectKind.PERMISSION, permission.value)
    note_object(resource)
