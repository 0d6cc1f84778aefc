"""Updates of a table's UUID, format version, location and encryption keys."""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid4

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.json_fields import (
    abbreviated,
    find_string,
    get_field,
    get_int,
    get_object,
    get_string,
    get_string_map,
)
from tidemill.iceberg.metadata.properties import SUPPORTED_VERSION
from tidemill.iceberg.metadata.table_builder import TableBuilder, with_field_ids
from tidemill.iceberg.model.entries import Document

_KEYS: Final = "encryption-keys"


def get_uuid(owner: Document, key: str, where: str) -> str:
    text = get_string(owner, key, where)
    try:
        UUID(text)
    except ValueError as error:
        raise InvalidMetadata(f"Cannot parse to a UUID: {where}.{key}: {abbreviated(text)}") from error
    return text


def without_trailing_slashes(location: str) -> str:
    """Strips trailing slashes, except those of the scheme."""
    while location.endswith("/") and not location.endswith("://"):
        location = location[:-1]
    return location


def check_assign_uuid(update: Document, where: str) -> None:
    get_uuid(update, "uuid", where)


def assign_uuid(builder: TableBuilder, update: Document) -> None:
    uuid: str = update["uuid"]
    known = builder.document.get("table-uuid")
    if known is not None and known.lower() == uuid.lower():
        return
    if known is not None and not builder.is_new:
        raise InvalidMetadata(f"Cannot reassign uuid: {known} to {uuid}")
    builder.put("table-uuid", uuid)


def check_upgrade(update: Document, where: str) -> None:
    get_int(update, "format-version", where)


def upgrade(builder: TableBuilder, update: Document) -> None:
    version = update["format-version"]
    if version > SUPPORTED_VERSION:
        raise InvalidMetadata(
            f"Cannot upgrade table to unsupported format version: v{version} "
            f"(supported: v{SUPPORTED_VERSION})"
        )
    if version < builder.version:
        raise InvalidMetadata(f"Cannot downgrade v{builder.version} table to v{version}")
    if version == builder.version:
        return
    before = builder.version
    builder.put("format-version", version)
    if before < 2:
        builder.document["partition-specs"] = [
            {**spec, "fields": with_field_ids(spec["fields"])} for spec in builder.document["partition-specs"]
        ]
        builder.document["last-sequence-number"] = 0
        # Optional in v1, required from v2 on.
        builder.document["table-uuid"] = builder.document.get("table-uuid") or str(uuid4())
        builder.document.pop("schema", None)
        builder.document.pop("partition-spec", None)
    if version > 2:
        builder.document["next-row-id"] = 0
        if builder.document["current-snapshot-id"] == -1:
            builder.set_current_snapshot(None)


def check_set_location(update: Document, where: str) -> None:
    if not get_string(update, "location", where):
        raise InvalidMetadata(f"Invalid table location: {where}.location must not be empty")


def set_location(builder: TableBuilder, update: Document) -> None:
    location = without_trailing_slashes(update["location"])
    if location != builder.document["location"]:
        builder.put("location", location)


def check_encryption_key(key: Document, where: str) -> None:
    get_string(key, "key-id", where)
    get_string(key, "encrypted-key-metadata", where)
    find_string(key, "encrypted-by-id", where)
    if key.get("properties") is not None:
        get_string_map(key, "properties", where)


def check_add_key(update: Document, where: str) -> None:
    path = f"{where}.encryption-key"
    check_encryption_key(get_object(get_field(update, "encryption-key", where), path), path)


def add_key(builder: TableBuilder, update: Document) -> None:
    keys = builder.document.get(_KEYS) or []
    key = update["encryption-key"]
    if all(known["key-id"] != key["key-id"] for known in keys):
        builder.put(_KEYS, [*keys, key])


def check_remove_key(update: Document, where: str) -> None:
    get_string(update, "key-id", where)


def remove_key(builder: TableBuilder, update: Document) -> None:
    keys = builder.document.get(_KEYS) or []
    remaining = [key for key in keys if key["key-id"] != update["key-id"]]
    if len(remaining) < len(keys):
        builder.put(_KEYS, remaining)
