"""How far credentials go that a caller is given for a table's files."""

from __future__ import annotations

from tidemill.catalog.model.callers import Caller, Permission, StorageAccess
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.ports import Authorizer
from tidemill.errors import PermissionDenied


def storage_access_of(authorizer: Authorizer, caller: Caller, ident: TableIdent) -> StorageAccess:
    """As far as the caller's permissions on the table."""
    try:
        authorizer.require(caller, Permission.WRITE, ident)
    except PermissionDenied:
        return StorageAccess.READ
    return StorageAccess.WRITE
