"""Whether vended credentials are read-only."""

from __future__ import annotations

from tidemill.catalog.model.callers import Caller, Permission, StorageAccess
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.ports import Authorizer
from tidemill.errors import PermissionDenied


def storage_access_of(authorizer: Authorizer, caller: Caller, ident: TableIdent) -> StorageAccess:
    """WRITE if the caller may write to the table, else READ."""
    try:
        authorizer.require(caller, Permission.WRITE, ident)
    except PermissionDenied:
        return StorageAccess.READ
    return StorageAccess.WRITE
