"""pyiceberg's way to files, led through the storage of the catalog: nothing outside it can be opened."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from tidemill.catalog.model.locations import LOCAL_URI, normalized_location
from tidemill.catalog.ports import TableFiles
from tidemill.errors import InvalidInput, Unsupported


def literal_place(location: str) -> str:
    """Clients write a percent sign in the name of a file as it is, in a URI too."""
    local = LOCAL_URI.fullmatch(location)
    return normalized_location(location if local is None else local[1], "")


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
    """For reading manifests and taking files away; tables are written by clients.

    Nothing is read from a directory that is somebody else's.
    """

    def __init__(
        self, files: TableFiles, is_anothers: Callable[[str], bool] = lambda directory: False, **more: Any
    ) -> None:
        super().__init__(more)
        self._files = files
        self._is_anothers = lru_cache(maxsize=None)(is_anothers)

    def new_input(self, location: str) -> InputFile:
        if self._is_anothers(literal_place(location).rpartition("/")[0]):
            raise InvalidInput("location", f"{location:.200} is in another table or view")
        return StoredFile(location, self._files)

    def new_output(self, location: str) -> OutputFile:
        raise Unsupported(f"{location} is not written by the catalog")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        place = location if isinstance(location, str) else location.location
        self._files.remove(self._files.key_of_file(literal_place(place)))
