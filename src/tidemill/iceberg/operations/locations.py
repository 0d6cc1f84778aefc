"""Where Iceberg tables and views lie."""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid4

from tidemill.catalog.model.locations import ICEBERG_DIRECTORY
from tidemill.catalog.ports import TableFiles
from tidemill.errors import InvalidInput
from tidemill.iceberg.files import MetadataFiles

SOME_TABLE: Final = UUID(int=0)


class EntryPlaces:
    """New ones get a directory of their own, named by no name: renaming moves nothing."""

    def __init__(self, files: TableFiles, metadata: MetadataFiles) -> None:
        warehouse = files.location_of(SOME_TABLE).rpartition("/")[0]
        # Clients read locations as URIs; a path with a percent sign would be read as another one.
        is_path = warehouse.startswith("/") and "%" not in warehouse
        self.warehouse = f"file://{warehouse}" if is_path else warehouse
        self._shared = f"{warehouse}/{ICEBERG_DIRECTORY}"
        self._metadata = metadata

    def new(self) -> tuple[UUID, str]:
        """An id and its location."""
        entry_id = uuid4()
        return entry_id, f"{self.warehouse}/{ICEBERG_DIRECTORY}/{entry_id}"

    def checked(self, location: str) -> str:
        """The place of a location that a client chose; raises InvalidInput when it is not ours to use."""
        place = self._metadata.resolve(location)
        if place == self._shared:
            raise InvalidInput("location", f"{location:.200} is where tables of many lie")
        return place

    def prepare(self, location: str) -> None:
        """Some clients write only into directories that exist."""
        self._metadata.make_directories(location)
