"""Locations of tables: how they are read, which are allowed and free, and who may write there."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote
from uuid import UUID

from tidemill.catalog.errors import LocationInUse
from tidemill.catalog.model.callers import Caller, Permission, StorageAccess
from tidemill.catalog.model.identifiers import MAX_NAME_BYTES, Namespace, TableIdent
from tidemill.catalog.ports import Authorizer, CatalogTransaction, TableFiles
from tidemill.errors import InvalidInput, PermissionDenied

MAX_LOCATION_BYTES: Final = 2048
TABLE_SUFFIX: Final = ".lance"
ICEBERG_DIRECTORY: Final = "iceberg"
"""Directory of Iceberg tables in the warehouse, unless their clients choose a location."""
NAMESPACES_DIRECTORY: Final = "namespaces"
"""Directory in that one with a directory per namespace, named by its id: names may repeat after a drop."""
LOCATION_PROPERTY: Final = "location"
# What follows exactly two slashes is a host; only localhost is accepted.
LOCAL_URI: Final = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)")
URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)")
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
SOME_TABLE: Final = UUID(int=0)
# Names of staged manifests continue after it.
MANIFEST_SUFFIX: Final = ".manifest"


class TableLocations:
    def __init__(self, files: TableFiles) -> None:
        self._files = files
        self._warehouse = warehouse_directory(files)

    def normalize(self, raw: str) -> str:
        """The canonical form of a location that a caller chose; raises InvalidInput if it is not allowed."""
        location = normalized_location(raw, self._warehouse)
        try:
            is_inside = self._files.is_inside(location) and self._files.is_inside(f"{location}/_versions")
        except NotADirectoryError as error:
            raise InvalidInput(
                "location", f"{raw!r:.200} cannot be used: one of its parents is a file"
            ) from error
        if not is_inside:
            raise InvalidInput(
                "location",
                f"{raw!r:.200} is outside the warehouse and the allowed locations, or is a symbolic link",
            )
        if is_shared_directory(location, self._warehouse):
            raise InvalidInput(
                "location", f"{raw!r:.200} is a directory for many Iceberg tables; choose a directory in it"
            )
        if self.is_managed(location) and is_in_table_directory(location, self._warehouse):
            raise InvalidInput(
                "location",
                f"{raw!r:.200} is inside a directory named like a table (*.lance); choose another location",
            )
        return location

    def is_managed(self, location: str) -> bool:
        """Whether it is in the warehouse. Files elsewhere are not ours and are never deleted."""
        return is_below(location, self._warehouse)

    def check_empty(self, location: str) -> None:
        """Checks the location of a new table; an existing table must be registered instead."""
        key = self._files.key_of(location)
        if self._files.list_names(key) or self._files.list_names(f"{key}/_versions"):
            raise InvalidInput("location", f"{location} is not empty; register the existing table instead")

    def check_unversioned(self, location: str) -> None:
        """Checks the location of a table whose first version may be staged, but not published, already."""
        names = self._files.list_names(f"{self._files.key_of(location)}/_versions")
        if any(name.endswith(MANIFEST_SUFFIX) for name in names):
            raise InvalidInput("location", f"{location} is not empty; register the existing table instead")

    def check_free(self, tx: CatalogTransaction, location: str) -> None:
        """Raises LocationInUse. The result stays valid until the transaction ends."""
        if tx.tables.has_overlapping(location):
            raise LocationInUse(location)


def storage_access_of(authorizer: Authorizer, caller: Caller, ident: TableIdent) -> StorageAccess:
    """WRITE if the caller may write to the table, else READ."""
    try:
        authorizer.require(caller, Permission.WRITE, ident)
    except PermissionDenied:
        return StorageAccess.READ
    return StorageAccess.WRITE


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


def warehouse_directory(files: TableFiles) -> str:
    return files.location_of(SOME_TABLE).rpartition("/")[0]


def warehouse_uri(files: TableFiles) -> str:
    """The warehouse as Iceberg clients see it, in default locations."""
    warehouse = warehouse_directory(files)
    # Clients read locations as URIs and would decode a percent sign in a path.
    is_path = warehouse.startswith("/") and "%" not in warehouse
    return f"file://{warehouse}" if is_path else warehouse


def namespace_location(namespace: Namespace, warehouse: str) -> str:
    """Where its new Iceberg tables and views go: its property `location`, or a directory of its own."""
    default = f"{warehouse}/{ICEBERG_DIRECTORY}/{NAMESPACES_DIRECTORY}/{namespace.namespace_id}"
    return namespace.properties.get(LOCATION_PROPERTY) or default


def is_shared_directory(location: str, warehouse: str) -> bool:
    """Whether it holds the Iceberg tables of one or all namespaces; a table there would overlap them."""
    shared = f"{warehouse}/{ICEBERG_DIRECTORY}"
    namespaces = f"{shared}/{NAMESPACES_DIRECTORY}"
    return location in (shared, namespaces) or location.rpartition("/")[0] == namespaces


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
