"""Locations of tables: inside the warehouse, empty, not overlapping others; and who may write there."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from tidemill.catalog.errors import LocationInUse
from tidemill.catalog.model.callers import Caller, Permission, StorageAccess
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.locations import (
    ICEBERG_DIRECTORY,
    is_below,
    is_in_table_directory,
    normalized_location,
)
from tidemill.catalog.ports import Authorizer, CatalogTransaction, TableFiles
from tidemill.errors import InvalidInput, PermissionDenied

SOME_TABLE: Final = UUID(int=0)
# Names of staged manifests continue after it.
MANIFEST_SUFFIX: Final = ".manifest"


class TableLocations:
    def __init__(self, files: TableFiles) -> None:
        self._files = files
        self._warehouse = files.location_of(SOME_TABLE).rpartition("/")[0]

    def normalize(self, raw: str) -> str:
        """The canonical form of a location that a caller chose; raises InvalidInput if it is not allowed."""
        location = normalized_location(raw, self._warehouse)
        try:
            is_inside = self._files.is_inside(location) and self._files.is_inside(f"{location}/_versions")
        except NotADirectoryError as error:
            raise InvalidInput(
                "location", f"{raw!r:.200} cannot be used: one of its parents is a file"
            ) from error
        if not is_inside:
            raise InvalidInput(
                "location",
                f"{raw!r:.200} is outside the warehouse and the allowed locations, or is a symbolic link",
            )
        if location == f"{self._warehouse}/{ICEBERG_DIRECTORY}":
            raise InvalidInput(
                "location", f"{raw!r:.200} is the directory of all Iceberg tables; choose a directory in it"
            )
        if self.is_managed(location) and is_in_table_directory(location, self._warehouse):
            raise InvalidInput(
                "location",
                f"{raw!r:.200} is inside a directory named like a table (*.lance); choose another location",
            )
        return location

    def is_managed(self, location: str) -> bool:
        """Whether it is in the warehouse. Files elsewhere are not ours and are never deleted."""
        return is_below(location, self._warehouse)

    def check_empty(self, location: str) -> None:
        """Checks the location of a new table; an existing table must be registered instead."""
        key = self._files.key_of(location)
        if self._files.list_names(key) or self._files.list_names(f"{key}/_versions"):
            raise InvalidInput("location", f"{location} is not empty; register the existing table instead")

    def check_unversioned(self, location: str) -> None:
        """Checks the location of a table whose first version may be staged, but not published, already."""
        names = self._files.list_names(f"{self._files.key_of(location)}/_versions")
        if any(name.endswith(MANIFEST_SUFFIX) for name in names):
            raise InvalidInput("location", f"{location} is not empty; register the existing table instead")

    def check_free(self, tx: CatalogTransaction, location: str) -> None:
        """Raises LocationInUse. The result stays valid until the transaction ends."""
        if tx.tables.has_overlapping(location):
            raise LocationInUse(location)


def storage_access_of(authorizer: Authorizer, caller: Caller, ident: TableIdent) -> StorageAccess:
    """WRITE if the caller may write to the table, else READ."""
    try:
        authorizer.require(caller, Permission.WRITE, ident)
    except PermissionDenied:
        return StorageAccess.READ
    return StorageAccess.WRITE
