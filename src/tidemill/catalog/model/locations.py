"""Locations of tables: reads absolute paths, URIs and paths relative to the warehouse."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from tidemill.catalog.model.identifiers import MAX_NAME_BYTES
from tidemill.errors import InvalidInput

MAX_LOCATION_BYTES: Final = 2048
TABLE_SUFFIX: Final = ".lance"
ICEBERG_DIRECTORY: Final = "iceberg"
"""Directory of Iceberg tables in the warehouse, unless their clients choose a location."""
# What follows exactly two slashes is a host; only localhost is accepted.
LOCAL_URI: Final = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)")
URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)")
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def normalized_location(raw: str, warehouse: str, field: str = "location") -> str:
    """The canonical form of a location: two locations overlap only if one is a prefix of the other."""
    if not raw or len(raw.encode()) > MAX_LOCATION_BYTES or CONTROL.search(raw):
        raise InvalidInput(field, f"must have 1 to {MAX_LOCATION_BYTES} bytes and no control characters")
    local, uri = LOCAL_URI.fullmatch(raw), URI.fullmatch(raw)
    if local is not None:
        return _local_path(unquote(local[1]), field)
    if uri is not None:
        return f"{uri[1].lower()}://{_normalized_path(uri[2], field)}"
    if raw.startswith("/"):
        return _local_path(raw, field)
    location = f"{warehouse}/{_normalized_path(raw, field)}"
    return _local_path(location, field) if location.startswith("/") else location


def is_below(location: str, warehouse: str) -> bool:
    return location.startswith(f"{warehouse}/")


def is_in_table_directory(location: str, warehouse: str) -> bool:
    """Whether a directory between the warehouse and the location has a name like that of a table."""
    above = location.removeprefix(f"{warehouse}/").split("/")[:-1]
    return any(part.endswith(TABLE_SUFFIX) for part in above)


def _local_path(path: str, field: str) -> str:
    location = f"/{_normalized_path(path, field)}"
    if CONTROL.search(location):
        raise InvalidInput(field, f"{path!r:.100} has control characters")
    if any(len(part.encode()) > MAX_NAME_BYTES for part in location.split("/")):
        raise InvalidInput(field, f"{path!r:.100} contains a name of more than {MAX_NAME_BYTES} bytes")
    return location


def _normalized_path(path: str, field: str) -> str:
    parts = [part for part in path.split("/") if part]
    if not parts or any(part in (".", "..") for part in parts):
        raise InvalidInput(
            field, f"{path!r:.200} is not a valid path: it must not be empty or contain '.' or '..'"
        )
    return "/".join(parts)
