"""pyiceberg's way to files, led through the storage of the catalog: nothing outside it can be opened."""

from __future__ import annotations

import io
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from tidemill.catalog.model.locations import LOCAL_URI, settled_location
from tidemill.catalog.ports import TableFiles
from tidemill.errors import Unsupported


def literal_place(location: str) -> str:
    """Clients write a percent sign in the name of a file as it is, in a URI too."""
    local = LOCAL_URI.fullmatch(location)
    return settled_location(location if local is None else local[1], "")


class StoredFile(InputFile):
    def __init__(self, location: str, files: TableFiles) -> None:
        super().__init__(location)
        self._files = files
        self._key = files.key_of_file(literal_place(location))

    def __len__(self) -> int:
        size = self._files.size_of(self._key)
        if size is None:
            raise FileNotFoundError(self.location)
        return size

    def exists(self) -> bool:
        return self._files.size_of(self._key) is not None

    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001, FBT002 - pyiceberg's signature
        return io.BytesIO(self._files.read(self._key))


class StoredFiles(FileIO):
    """For reading manifests and taking files away; tables are written by clients."""

    def __init__(self, files: TableFiles, **properties: Any) -> None:
        super().__init__(properties)
        self._files = files

    def new_input(self, location: str) -> InputFile:
        return StoredFile(location, self._files)

    def new_output(self, location: str) -> OutputFile:
        raise Unsupported(f"{location} is not written by the catalog")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        place = location if isinstance(location, str) else location.location
        self._files.remove(self._files.key_of_file(literal_place(place)))
