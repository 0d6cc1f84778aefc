"""Opens the file system behind a location."""

from __future__ import annotations

from pyarrow import fs


def open_location(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path within it."""
    if location.startswith("/"):
        return fs.LocalFileSystem(), location
    opened: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(location)
    return opened
