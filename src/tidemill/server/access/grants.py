"""Checks what callers are granted, by the settings and by the catalog.

A grant on a namespace covers everything in and below it. A grant on a table, a view or a function covers that
object, and makes the namespaces above it visible. What a credential is restricted to narrows this further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from tidemill.catalog.model.access import (
    AccessState,
    ApiKey,
    Grant,
    Grantee,
    namespace_of,
    principal_grantee,
    role_grantee,
)
from tidemill.catalog.model.callers import Caller, Permission, Scope
from tidemill.catalog.model.identifiers import NamespacePath, Securable
from tidemill.errors import PermissionDenied

Levels: TypeAlias = tuple[str, ...]
IMPLIED: Final[Mapping[Permission, frozenset[Permission]]] = {
    Permission.READ: frozenset({Permission.READ}),
    Permission.WRITE: frozenset({Permission.WRITE, Permission.READ}),
    Permission.MANAGE: frozenset({Permission.MANAGE, Permission.WRITE, Permission.READ}),
    Permission.COMPUTE: frozenset({Permission.COMPUTE, Permission.READ}),
    Permission.FUNCTION: frozenset({Permission.FUNCTION, Permission.READ}),
    Permission.ADMIN: frozenset(Permission),
}
NOTHING: Final = frozenset[Permission]()
MAX_REMEMBERED: Final = 10_000


class AllowEverything:
    """For embedded servers, whose caller is the owner, and for workers, whose jobs are already authorized."""

    def require(self, caller: Caller, permission: Permission, resource: Securable) -> None:
        return None

    def sees(self, caller: Caller, resource: Securable) -> bool:
        return True


class Allowed:
    """What a set of grants allows."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self._namespaces: dict[Levels, frozenset[Permission]] = {}
        self._objects: dict[Securable, frozenset[Permission]] = {}
        # Namespaces that lie above something granted.
        self._ways: set[Levels] = set()
        for grant in grants:
            self._add(grant.resource, IMPLIED[grant.permission])

    def _add(self, resource: Securable, permissions: frozenset[Permission]) -> None:
        levels = resource.levels
        if isinstance(resource, NamespacePath):
            self._namespaces[levels] = self._namespaces.get(levels, NOTHING) | permissions
        else:
            self._objects[resource] = self._objects.get(resource, NOTHING) | permissions
        self._ways.update(levels[:depth] for depth in range(len(levels)))

    def allows(self, permission: Permission, resource: Securable) -> bool:
        levels = namespace_of(resource).levels
        for depth in range(len(levels) + 1):
            if permission in self._namespaces.get(levels[:depth], NOTHING):
                return True
        return permission in self._objects.get(resource, NOTHING)

    def shows(self, resource: Securable) -> bool:
        if self.allows(Permission.READ, resource):
            return True
        return isinstance(resource, NamespacePath) and resource.levels in self._ways


@dataclass(frozen=True)
class AccessSnapshot:
    """Clients, roles and grants as of one moment."""

    state: AccessState
    settings_grants: tuple[Grant, ...] = ()

    @cached_property
    def keys(self) -> Mapping[str, ApiKey]:
        return {key.key_id: key for key in self.state.keys}

    @cached_property
    def client_ids(self) -> frozenset[str]:
        """Clients with a key."""
        return frozenset(key.client_id for key in self.state.keys)

    def allowed(self, caller: Caller) -> Allowed:
        identity = (caller.principal, caller.roles)
        allowed = self._allowed.get(identity)
        if allowed is None:
            if len(self._allowed) >= MAX_REMEMBERED:
                self._allowed.clear()
            allowed = self._allowed[identity] = Allowed(self._grants_of(caller))
        return allowed

    def _grants_of(self, caller: Caller) -> Iterable[Grant]:
        roles = caller.roles | self.state.roles.get(caller.principal, frozenset())
        for grantee in (principal_grantee(caller.principal), *map(role_grantee, roles)):
            yield from self._by_grantee.get(grantee, ())

    @cached_property
    def _by_grantee(self) -> Mapping[Grantee, list[Grant]]:
        found: dict[Grantee, list[Grant]] = {}
        for grant in (*self.settings_grants, *self.state.grants):
            found.setdefault(grant.grantee, []).append(grant)
        return found

    @cached_property
    def _allowed(self) -> dict[tuple[str, frozenset[str]], Allowed]:
        return {}


class GrantAuthorizer:
    """`current` returns the snapshot to decide by."""

    def __init__(self, current: Callable[[], AccessSnapshot]) -> None:
        self._current = current

    def require(self, caller: Caller, permission: Permission, resource: Securable) -> None:
        allowed = self._current().allowed(caller)
        in_scope = caller.scope is None or _scope_allows(caller.scope, permission, resource)
        if not in_scope or not allowed.allows(permission, resource):
            raise PermissionDenied(caller.principal, permission.value, str(resource))

    def sees(self, caller: Caller, resource: Securable) -> bool:
        allowed, scope = self._current().allowed(caller), caller.scope
        if scope is None or _scope_allows(scope, Permission.READ, resource):
            return allowed.shows(resource)
        is_above = isinstance(resource, NamespacePath) and _is_within(scope.namespace, resource)
        return is_above and allowed.shows(scope.namespace) and _conveys(scope, Permission.READ)


def _scope_allows(scope: Scope, permission: Permission, resource: Securable) -> bool:
    return _is_within(namespace_of(resource), scope.namespace) and _conveys(scope, permission)


def _conveys(scope: Scope, permission: Permission) -> bool:
    if scope.permissions is None:
        return True
    return any(permission in IMPLIED[conveyed] for conveyed in scope.permissions)


def _is_within(path: NamespacePath, other: NamespacePath) -> bool:
    return path.levels[: len(other.levels)] == other.levels
