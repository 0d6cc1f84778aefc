"""Locations of Iceberg tables and views: defaults for new ones, and checks of those that clients choose."""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid4

from tidemill.catalog.model.locations import ICEBERG_DIRECTORY
from tidemill.catalog.ports import TableFiles
from tidemill.errors import InvalidInput
from tidemill.iceberg.files import MetadataFiles

ANY_TABLE_ID: Final = UUID(int=0)


class EntryLocations:
    """New entries get a directory named by their id, not by their name, so renaming moves no files."""

    def __init__(self, files: TableFiles, metadata: MetadataFiles) -> None:
        warehouse = files.location_of(ANY_TABLE_ID).rpartition("/")[0]
        # Clients read locations as URIs and would decode a percent sign in a path.
        is_path = warehouse.startswith("/") and "%" not in warehouse
        self.warehouse = f"file://{warehouse}" if is_path else warehouse
        self._shared_directory = f"{warehouse}/{ICEBERG_DIRECTORY}"
        self._metadata = metadata

    def new(self) -> tuple[UUID, str]:
        """A new id, and the default location of the entry with that id."""
        entry_id = uuid4()
        return entry_id, f"{self.warehouse}/{ICEBERG_DIRECTORY}/{entry_id}"

    def resolve(self, location: str) -> str:
        """Normalizes a location that a client chose; raises InvalidInput if it must not be used."""
        normalized = self._metadata.resolve(location)
        if normalized == self._shared_directory:
            raise InvalidInput(
                "location", f"{location:.200} is the directory that all tables share; choose one below it"
            )
        return normalized

    def make_directories(self, location: str) -> None:
        """Some clients only write into existing directories."""
        self._metadata.make_directories(location)
