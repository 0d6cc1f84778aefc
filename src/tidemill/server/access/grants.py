"""Checks what callers are granted: permissions on a namespace and everything below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.errors import PermissionDenied

Grants: TypeAlias = Mapping[NamespacePath, frozenset[Permission]]
IMPLIED: Final[Mapping[Permission, frozenset[Permission]]] = {
    Permission.READ: frozenset({Permission.READ}),
    Permission.WRITE: frozenset({Permission.WRITE, Permission.READ}),
    Permission.MANAGE: frozenset({Permission.MANAGE, Permission.WRITE, Permission.READ}),
    Permission.COMPUTE: frozenset({Permission.COMPUTE, Permission.READ}),
    Permission.FUNCTION: frozenset({Permission.FUNCTION, Permission.READ}),
    Permission.ADMIN: frozenset(Permission),
}


class AllowEverything:
    """For embedded servers, whose caller is the owner, and for workers, whose jobs are already authorized."""

    def require(self, caller: Caller, permission: Permission, resource: NamespacePath | TableIdent) -> None:
        return None

    def sees(self, caller: Caller, resource: NamespacePath | TableIdent) -> bool:
        return True


class GrantAuthorizer:
    """A grant applies to its namespace and everything below it. A grant on the root applies everywhere."""

    def __init__(self, grants: Mapping[str, Grants]) -> None:
        self._allowed = {
            principal: {path.levels: _with_implied(granted) for path, granted in held.items()}
            for principal, held in grants.items()
        }

    def require(self, caller: Caller, permission: Permission, resource: NamespacePath | TableIdent) -> None:
        allowed = self._allowed.get(caller.principal, {})
        levels = _namespace_of(resource).levels
        if not any(permission in allowed.get(levels[:depth], ()) for depth in range(len(levels) + 1)):
            raise PermissionDenied(caller.principal, permission.value, str(resource))

    def sees(self, caller: Caller, resource: NamespacePath | TableIdent) -> bool:
        allowed = self._allowed.get(caller.principal, {})
        levels = _namespace_of(resource).levels
        if any(Permission.READ in allowed.get(levels[:depth], ()) for depth in range(len(levels) + 1)):
            return True
        is_namespace = isinstance(resource, NamespacePath)
        return is_namespace and any(below[: len(levels)] == levels for below in allowed)


def _namespace_of(resource: NamespacePath | TableIdent) -> NamespacePath:
    """The namespace whose grants apply. A grant on a namespace does not cover a table of the same name."""
    return resource.namespace if isinstance(resource, TableIdent) else resource


def _with_implied(granted: frozenset[Permission]) -> frozenset[Permission]:
    return frozenset().union(*(IMPLIED[permission] for permission in granted))
