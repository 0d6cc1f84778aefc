"""What the server needs from a warehouse, which of its directories are tables, and how to open a location."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from pyarrow import fs

from tidemill.catalog.ports import TableFiles
from tidemill.errors import InvalidInput


class Warehouse(TableFiles, Protocol):
    def check_readable(self) -> None:
        """Raises Unavailable if the warehouse cannot be read."""

    def check_writable(self) -> None:
        """Raises Unavailable if the warehouse is not writable, StorageFull if it is full; leaves nothing."""


TABLE_SUFFIX: Final = ".lance"
JOBS_DIRECTORY: Final = "_jobs"
"""Directory for files of running jobs in object stores; no table may be located there."""


def check_removable(location: str, parts: Sequence[str]) -> None:
    """Raises InvalidInput for the warehouse itself and for paths inside a table.

    `parts` are the path segments below the warehouse.
    """
    if not parts or any(part.endswith(TABLE_SUFFIX) for part in parts[:-1]):
        raise InvalidInput("location", f"{location} is not a table of this warehouse")


def open_location(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path within it."""
    if location.startswith("/"):
        return fs.LocalFileSystem(), location
    opened: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(location)
    return opened
