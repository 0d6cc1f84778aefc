"""Tells the audit which objects a request is about: those that it needs permissions on."""

from __future__ import annotations

from tidemill.catalog.auditing import note_checked
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import Securable
from tidemill.catalog.ports import Authorizer
from tidemill.errors import PermissionDenied


class NamingAuthorizer:
    """Objects that a request only has to read are not what it is about, unless the caller may not."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def require(self, caller: Caller, permission: Permission, resource: Securable) -> None:
        if permission is not Permission.READ:
            note_checked(resource)
        try:
            self._authorizer.require(caller, permission, resource)
        except PermissionDenied:
            note_checked(resource)
            raise

    def sees(self, caller: Caller, resource: Securable) -> bool:
        return self._authorizer.sees(caller, resource)
