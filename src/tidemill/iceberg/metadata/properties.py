"""Table properties: reserved ones, validated ones, and the updates that set and remove them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.json_fields import abbreviated, as_int, get_string_list, get_string_map
from tidemill.iceberg.metadata.table_builder import TableBuilder
from tidemill.iceberg.model.entries import Document

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


def set_properties(builder: TableBuilder, update: Document) -> None:
    added = update[_sent_key(update, "updates", "updated")]
    if added:
        builder.put("properties", {**builder.document["properties"], **added})


def check_remove_properties(update: Document, where: str) -> None:
    get_string_list(update, _sent_key(update, "removals", "removed"), where)


def remove_properties(builder: TableBuilder, update: Document) -> None:
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
