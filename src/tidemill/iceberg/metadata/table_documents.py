"""Validates a table's metadata document that was written elsewhere, before the table is registered."""

from __future__ import annotations

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.ids import find_by_id, id_of
from tidemill.iceberg.metadata.json_fields import (
    abbreviated,
    check_depth,
    find_int,
    find_long,
    get_field,
    get_int,
    get_list,
    get_long,
    get_object,
    get_objects,
    get_string,
    get_string_map,
)
from tidemill.iceberg.metadata.partitions import check_spec, check_spec_columns, check_spec_fields
from tidemill.iceberg.metadata.properties import SUPPORTED_VERSION
from tidemill.iceberg.metadata.references import check_log_times, check_ref
from tidemill.iceberg.metadata.schemas import Column, get_columns
from tidemill.iceberg.metadata.snapshots import check_snapshot
from tidemill.iceberg.metadata.sort_orders import check_order, check_order_columns
from tidemill.iceberg.metadata.statistics import check_partition_statistics, check_statistics
from tidemill.iceberg.metadata.table_attributes import check_encryption_key, get_uuid
from tidemill.iceberg.metadata.table_builder import MAIN, with_defaults
from tidemill.iceberg.model.entries import Document

_WHERE = "metadata"


def check_table(metadata: Document) -> None:
    """Raises InvalidMetadata, naming the field, if the document is not a valid table that can be served."""
    check_depth(get_object(metadata, _WHERE), _WHERE)
    version = get_int(metadata, "format-version", _WHERE)
    if not 1 <= version <= SUPPORTED_VERSION:
        raise InvalidMetadata(f"Cannot read unsupported version {version}")
    _check_fields(metadata, version)
    _check_lists(metadata)
    _check_schema_spec_and_order(metadata, version)
    _check_history(with_defaults(metadata))


def _check_fields(metadata: Document, version: int) -> None:
    if version > 1 or metadata.get("table-uuid") is not None:
        get_uuid(metadata, "table-uuid", _WHERE)
    if not get_string(metadata, "location", _WHERE):
        raise InvalidMetadata(f"Table location is required in format v{version}")
    get_long(metadata, "last-updated-ms", _WHERE)
    get_int(metadata, "last-column-id", _WHERE)
    find_long(metadata, "current-snapshot-id", _WHERE)
    find_int(metadata, "last-partition-id", _WHERE)
    if version > 1:
        get_long(metadata, "last-sequence-number", _WHERE)
        get_int(metadata, "last-partition-id", _WHERE)
    if version > 2:
        get_long(metadata, "next-row-id", _WHERE)
    if metadata.get("properties") is not None:
        get_string_map(metadata, "properties", _WHERE)


def _check_lists(metadata: Document) -> None:
    for key, check in (
        ("snapshots", check_snapshot),
        ("statistics", check_statistics),
        ("partition-statistics", check_partition_statistics),
        ("snapshot-log", _check_snapshot_entry),
        ("metadata-log", _check_metadata_entry),
        ("encryption-keys", check_encryption_key),
    ):
        if metadata.get(key) is not None:
            for index, item in enumerate(get_objects(metadata, key, _WHERE)):
                check(item, f"{_WHERE}.{key}[{index}]")
    if metadata.get("refs") is not None:
        refs = get_object(metadata["refs"], f"{_WHERE}.refs")
        for name, ref in refs.items():
            path = f"{_WHERE}.refs.{name}"
            check_ref(get_object(ref, path), path)


def _check_snapshot_entry(entry: Document, where: str) -> None:
    get_long(entry, "timestamp-ms", where)
    get_long(entry, "snapshot-id", where)


def _check_metadata_entry(entry: Document, where: str) -> None:
    get_long(entry, "timestamp-ms", where)
    get_string(entry, "metadata-file", where)


def _check_schema_spec_and_order(metadata: Document, version: int) -> None:
    columns = _current_columns(metadata, version)
    _check_specs(metadata, version, columns)
    if _has_list(metadata, "sort-orders", version):
        default_id = get_int(metadata, "default-sort-order-id", _WHERE)
        orders = get_objects(metadata, "sort-orders", _WHERE)
        for index, order in enumerate(orders):
            path = f"{_WHERE}.sort-orders[{index}]"
            get_int(order, "order-id", path)
            check_order(order, path)
        _check_unique(orders, "order-id", "sort-orders")
        check_order_columns(_get_by_id(orders, "order-id", default_id, "sort-orders"), columns)


def _current_columns(metadata: Document, version: int) -> dict[int, Column]:
    if not _has_list(metadata, "schemas", version):
        schema = get_object(get_field(metadata, "schema", _WHERE), f"{_WHERE}.schema")
        return get_columns(schema, f"{_WHERE}.schema")
    current_id = get_int(metadata, "current-schema-id", _WHERE)
    schemas = get_objects(metadata, "schemas", _WHERE)
    for index, schema in enumerate(schemas):
        get_columns(schema, f"{_WHERE}.schemas[{index}]")
    _check_unique(schemas, "schema-id", "schemas")
    return get_columns(_get_by_id(schemas, "schema-id", current_id, "schemas"), f"{_WHERE}.schemas")


def _check_specs(metadata: Document, version: int, columns: dict[int, Column]) -> None:
    if not _has_list(metadata, "partition-specs", version):
        path = f"{_WHERE}.partition-spec"
        fields = get_list(get_field(metadata, "partition-spec", _WHERE), path)
        check_spec_fields(fields, path)
        check_spec_columns({"fields": fields}, columns)
        return
    default_id = get_int(metadata, "default-spec-id", _WHERE)
    specs = get_objects(metadata, "partition-specs", _WHERE)
    for index, spec in enumerate(specs):
        check_spec(spec, f"{_WHERE}.partition-specs[{index}]")
    _check_unique(specs, "spec-id", "partition-specs")
    check_spec_columns(_get_by_id(specs, "spec-id", default_id, "partition-specs"), columns)


def _check_history(table: Document) -> None:
    """Checks that references and current snapshot exist, and that sequence numbers and logs are in order."""
    snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in table["snapshots"]}
    if len(snapshots) < len(table["snapshots"]):
        raise InvalidMetadata(f"Snapshot ids are not unique: {_WHERE}.snapshots")
    last = table["last-sequence-number"] if table["format-version"] > 1 else 0
    for snapshot in snapshots.values():
        sequence = snapshot.get("sequence-number") or 0
        if sequence > last:
            raise InvalidMetadata(
                f"Invalid snapshot with sequence number {sequence} greater than last sequence number {last}"
            )
    for name, ref in table["refs"].items():
        if ref["snapshot-id"] not in snapshots:
            raise InvalidMetadata(
                f"Snapshot for reference {name} does not exist in the existing snapshots list"
            )
    _check_current(table["current-snapshot-id"], table["refs"].get(MAIN))
    check_log_times(table["snapshot-log"], table["last-updated-ms"], "snapshot log")
    check_log_times(table["metadata-log"], table["last-updated-ms"], "metadata log")


def _check_current(current: int | None, main: Document | None) -> None:
    if main is None:
        return
    if current in (None, -1):
        raise InvalidMetadata(f"Current snapshot is not set, but main branch exists: {abbreviated(main)}")
    if current != main["snapshot-id"]:
        raise InvalidMetadata(
            f"Current snapshot ID does not match main branch ({current} != {main['snapshot-id']})"
        )


def _has_list(metadata: Document, key: str, version: int) -> bool:
    """Early v1 writers omit the list."""
    if metadata.get(key) is not None:
        return True
    if version > 1:
        raise InvalidMetadata(f"{key} must exist in format v{version}")
    return False


def _get_by_id(documents: list[Document], key: str, wanted: int, label: str) -> Document:
    document = find_by_id(documents, key, wanted)
    if document is None:
        raise InvalidMetadata(f"Cannot find {key}={wanted} in {_WHERE}.{label}")
    return document


def _check_unique(documents: list[Document], key: str, label: str) -> None:
    ids = [id_of(document, key) for document in documents]
    if len(set(ids)) < len(ids):
        raise InvalidMetadata(f"{key} is not unique in {_WHERE}.{label}: {ids}")
