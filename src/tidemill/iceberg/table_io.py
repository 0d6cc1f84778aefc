"""A FileIO for pyiceberg on the catalog's storage: it opens only files in allowed locations."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from tidemill.catalog.locations import LOCAL_URI, normalized_location
from tidemill.catalog.ports import TableFiles
from tidemill.errors import InvalidInput, Unsupported


def literal_location(location: str) -> str:
    """Normalizes the location of a file; clients write percent signs literally, even in URIs."""
    local = LOCAL_URI.fullmatch(location)
    return normalized_location(location if local is None else local[1], "")


class CatalogInputFile(InputFile):
    def __init__(self, location: str, files: TableFiles) -> None:
        super().__init__(location)
        self._files = files
        self._key = files.key_of_file(literal_location(location))

    def __len__(self) -> int:
        size = self._files.size_of(self._key)
        if size is None:
            raise FileNotFoundError(self.location)
        return size

    def exists(self) -> bool:
        return self._files.size_of(self._key) is not None

    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001, FBT002 - pyiceberg's signature
        return io.BytesIO(self._files.read(self._key))


class CatalogFileIO(FileIO):
    """Reads manifests and deletes files; clients write tables, so it writes nothing.

    `is_foreign` tells whether a directory belongs to another table or view; nothing is read from those.
    """

    def __init__(
        self,
        files: TableFiles,
        is_foreign: Callable[[str], bool] = lambda directory: False,
        **properties: Any,
    ) -> None:
        super().__init__(properties)
        self._files = files
        self._is_foreign = lru_cache(maxsize=None)(is_foreign)

    def new_input(self, location: str) -> InputFile:
        if self._is_foreign(literal_location(location).rpartition("/")[0]):
            raise InvalidInput("location", f"{location:.200} is in another table or view")
        return CatalogInputFile(location, self._files)

    def new_output(self, location: str) -> OutputFile:
        raise Unsupported(f"{location} cannot be written: the catalog writes no table files")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        self._files.remove(self._files.key_of_file(literal_location(path)))
