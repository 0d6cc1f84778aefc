"""Locations, as paths or URIs, and the file systems behind them."""

from __future__ import annotations

from pyarrow import fs


def open_location(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a location, and the path in it."""
    if location.startswith("/"):
        return fs.LocalFileSystem(), location
    opened: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(location)
    return opened
