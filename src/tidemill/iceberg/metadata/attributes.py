"""UUID, format version, location, properties and encryption keys: validation, and the updates of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID, uuid4

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.builders import DocumentBuilder, TableBuilder, with_field_ids
from tidemill.iceberg.metadata.json_fields import (
    abbreviated,
    as_int,
    find_string,
    get_field,
    get_int,
    get_object,
    get_string,
    get_string_list,
    get_string_map,
)
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


FORMAT_VERSION: Final = "format-version"
SUPPORTED_VERSION: Final = 3
_DEFAULT_VERSION: Final = 2
_RESERVED: Final = frozenset(
    {
        FORMAT_VERSION,
        "uuid",
        "snapshot-count",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
_NEW_TABLE_DEFAULTS: Final[Mapping[str, str]] = {"write.parquet.compression-codec": "zstd"}
_COUNTS: Final = (
    "commit.retry.num-retries",
    "commit.retry.min-wait-ms",
    "commit.retry.max-wait-ms",
    "commit.retry.total-timeout-ms",
)
_ENCRYPTION: Final = ("encryption.key-id", "encryption.data-key-length")
_COLUMN_METRICS: Final = "write.metadata.metrics.column."
_PREVIOUS_VERSIONS: Final = "write.metadata.previous-versions-max"
_PREVIOUS_VERSIONS_DEFAULT: Final = 100
_DELETE_AFTER_COMMIT: Final = "write.metadata.delete-after-commit.enabled"


def requested_version(properties: Mapping[str, str]) -> int:
    """The format version requested for a new table."""
    version = _integer(properties, FORMAT_VERSION, _DEFAULT_VERSION)
    if not 1 <= version <= SUPPORTED_VERSION:
        raise InvalidMetadata(f"Unsupported format version: v{version} (supported: v{SUPPORTED_VERSION})")
    return version


def new_properties(properties: Mapping[str, str], version: int, columns: Iterable[str]) -> dict[str, str]:
    """The properties stored for a new table: without reserved ones, with the defaults of new tables."""
    stored = {
        **_NEW_TABLE_DEFAULTS,
        **{key: text for key, text in properties.items() if key not in _RESERVED},
    }
    for key in _COUNTS:
        _check_count(stored, key)
    encryption = [key for key in _ENCRYPTION if key in stored]
    if version < 3 and encryption:
        raise InvalidMetadata(f"Invalid properties for v{version}: [{', '.join(encryption)}]")
    names = set(columns)
    for key in stored:
        if key.startswith(_COLUMN_METRICS) and key.removeprefix(_COLUMN_METRICS) not in names:
            raise InvalidMetadata(
                f"Invalid metrics config, could not find column {key.removeprefix(_COLUMN_METRICS)} "
                f"from table prop {key} in schema"
            )
    max_previous_versions(stored)
    return stored


def max_previous_versions(properties: Mapping[str, str]) -> int:
    """How many previous metadata files the metadata log keeps."""
    return max(1, _integer(properties, _PREVIOUS_VERSIONS, _PREVIOUS_VERSIONS_DEFAULT))


def deletes_old_metadata(properties: Mapping[str, str]) -> bool:
    return properties.get(_DELETE_AFTER_COMMIT, "false").lower() == "true"


def check_set_properties(update: Document, where: str) -> None:
    get_string_map(update, _sent_key(update, "updates", "updated"), where)


def set_properties(builder: DocumentBuilder, update: Document) -> None:
    added = update[_sent_key(update, "updates", "updated")]
    if added:
        builder.put("properties", {**builder.document["properties"], **added})


def check_remove_properties(update: Document, where: str) -> None:
    get_string_list(update, _sent_key(update, "removals", "removed"), where)


def remove_properties(builder: DocumentBuilder, update: Document) -> None:
    """Ignores unknown names, but still counts as a change."""
    removed = set(update[_sent_key(update, "removals", "removed")])
    if removed:
        properties = builder.document["properties"]
        builder.put("properties", {key: text for key, text in properties.items() if key not in removed})


def _sent_key(update: Document, key: str, legacy: str) -> str:
    """The key that the client sent: early clients use another one than the specification."""
    return legacy if legacy in update and key not in update else key


def _integer(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key)
    if text is None:
        return default
    number = as_int(text)
    if number is None:
        raise InvalidMetadata(f"Table property {key} must have integer value: {abbreviated(text)}")
    return number


def _check_count(properties: Mapping[str, str], key: str) -> None:
    if _integer(properties, key, 0) < 0:
        raise InvalidMetadata(f"Table property {key} must have non negative integer value")
