"""Authorizers over grants that a test names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemill.catalog.model.access import AccessState, Grant, principal_grantee
from tidemill.catalog.model.callers import Permission
from tidemill.catalog.model.identifiers import Securable
from tidemill.server.access.grants import AccessSnapshot, GrantAuthorizer


def grants_of(principal: str, held: Mapping[Securable, Iterable[Permission]]) -> list[Grant]:
    return [
        Grant(principal_grantee(principal), permission, resource)
        for resource, permissions in held.items()
        for permission in permissions
    ]


def authorizer_of(held: Mapping[str, Mapping[Securable, Iterable[Permission]]]) -> GrantAuthorizer:
    """Of principals with the permissions that they hold on each object."""
    grants = [grant for principal in held for grant in grants_of(principal, held[principal])]
    snapshot = AccessSnapshot(AccessState(grants=grants))
    return GrantAuthorizer(lambda: snapshot)
