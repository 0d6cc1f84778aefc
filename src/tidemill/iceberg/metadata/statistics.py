"""Statistics files and partition statistics files, at most one of each per snapshot."""

from __future__ import annotations

from tidemill.iceberg.metadata.json_fields import (
    get_field,
    get_ints,
    get_long,
    get_object,
    get_objects,
    get_string,
    get_string_map,
)
from tidemill.iceberg.metadata.table_builder import TableBuilder
from tidemill.iceberg.model.entries import Document


def check_partition_statistics(file: Document, where: str) -> None:
    get_long(file, "snapshot-id", where)
    get_string(file, "statistics-path", where)
    get_long(file, "file-size-in-bytes", where)


def check_statistics(file: Document, where: str) -> None:
    check_partition_statistics(file, where)
    get_long(file, "file-footer-size-in-bytes", where)
    for index, blob in enumerate(get_objects(file, "blob-metadata", where)):
        path = f"{where}.blob-metadata[{index}]"
        get_string(blob, "type", path)
        get_long(blob, "snapshot-id", path)
        get_long(blob, "sequence-number", path)
        get_ints(blob, "fields", path)
        if blob.get("properties") is not None:
            get_string_map(blob, "properties", path)


def check_set_statistics(update: Document, where: str) -> None:
    path = f"{where}.statistics"
    check_statistics(get_object(get_field(update, "statistics", where), path), path)


def set_statistics(builder: TableBuilder, update: Document) -> None:
    builder.statistics[update["statistics"]["snapshot-id"]] = [update["statistics"]]
    builder.has_changed = True


def check_set_partition_statistics(update: Document, where: str) -> None:
    path = f"{where}.partition-statistics"
    file = get_object(get_field(update, "partition-statistics", where), path)
    check_partition_statistics(file, path)


def set_partition_statistics(builder: TableBuilder, update: Document) -> None:
    file = update["partition-statistics"]
    builder.partition_statistics[file["snapshot-id"]] = [file]
    builder.has_changed = True


def check_snapshot_id(update: Document, where: str) -> None:
    get_long(update, "snapshot-id", where)


def remove_statistics(builder: TableBuilder, update: Document) -> None:
    if builder.statistics.pop(update["snapshot-id"], None) is not None:
        builder.has_changed = True


def remove_partition_statistics(builder: TableBuilder, update: Document) -> None:
    if builder.partition_statistics.pop(update["snapshot-id"], None) is not None:
        builder.has_changed = True
