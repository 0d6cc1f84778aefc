"""Where tables may lie, and who lies there already."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from tidemill.catalog.errors import LocationInUse
from tidemill.catalog.model.locations import (
    ICEBERG_DIRECTORY,
    is_below,
    is_in_table_directory,
    normalized_location,
)
from tidemill.catalog.ports import CatalogTransaction, TableFiles
from tidemill.errors import InvalidInput

SOME_TABLE: Final = UUID(int=0)
# Names of staged manifests go on behind it.
MANIFEST_SUFFIX: Final = ".manifest"


class TableLocations:
    def __init__(self, files: TableFiles) -> None:
        self._files = files
        self._warehouse = files.location_of(SOME_TABLE).rpartition("/")[0]

    def normalize(self, raw: str) -> str:
        """The location a caller chose, in the one form it is stored in; refuses places that are not ours."""
        location = normalized_location(raw, self._warehouse)
        try:
            is_inside = self._files.is_inside(location) and self._files.is_inside(f"{location}/_versions")
        except NotADirectoryError as error:
            raise InvalidInput("location", f"{raw!r:.200} cannot be used: a part of it is a file") from error
        if not is_inside:
            raise InvalidInput(
                "location",
                f"{raw!r:.200} is neither in the warehouse nor under an allowed location, or a link",
            )
        if location == f"{self._warehouse}/{ICEBERG_DIRECTORY}":
            raise InvalidInput("location", f"{raw!r:.200} is where tables of many lie")
        if self.is_managed(location) and is_in_table_directory(location, self._warehouse):
            raise InvalidInput("location", f"{raw!r:.200} lies in a directory that is named like a table's")
        return location

    def is_managed(self, location: str) -> bool:
        """Whether it lies in the warehouse: what lies elsewhere is somebody else's and is never deleted."""
        return is_below(location, self._warehouse)

    def check_empty(self, location: str) -> None:
        """A place for a new table; what is there already is registered, not declared."""
        key = self._files.key_of(location)
        if self._files.list_names(key) or self._files.list_names(f"{key}/_versions"):
            raise InvalidInput("location", f"{location} is not empty; register the table that is there")

    def check_unversioned(self, location: str) -> None:
        """A place for a table whose first version may be staged already, and no other is there."""
        names = self._files.list_names(f"{self._files.key_of(location)}/_versions")
        if any(name.endswith(MANIFEST_SUFFIX) for name in names):
            raise InvalidInput("location", f"{location} is not empty; register the table that is there")

    def check_free(self, tx: CatalogTransaction, location: str) -> None:
        """Holds for the rest of the transaction; raises LocationInUse."""
        if tx.tables.has_overlapping(location):
            raise LocationInUse(location)
