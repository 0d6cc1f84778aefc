"""Snapshots: validation, and the updates that add and remove them."""

from __future__ import annotations

from typing import Final

from tidemill.iceberg.errors import CommitConflict, InvalidMetadata
from tidemill.iceberg.metadata.json_fields import (
    find_int,
    find_long,
    find_string,
    get_field,
    get_long,
    get_longs,
    get_object,
    get_string,
    get_string_list,
    get_string_map,
)
from tidemill.iceberg.metadata.references import drop_ref
from tidemill.iceberg.metadata.table_builder import TableBuilder
from tidemill.iceberg.model.entries import Document

_LONG_LIMIT: Final = 2**63


def check_snapshot(snapshot: Document, where: str) -> None:
    get_long(snapshot, "snapshot-id", where)
    get_long(snapshot, "timestamp-ms", where)
    find_long(snapshot, "sequence-number", where)
    find_long(snapshot, "parent-snapshot-id", where)
    find_int(snapshot, "schema-id", where)
    find_string(snapshot, "key-id", where)
    if "summary" in snapshot:
        get_string_map(snapshot, "summary", where)
    if snapshot.get("manifest-list") is not None or "manifests" not in snapshot:
        get_string(snapshot, "manifest-list", where)
    else:
        get_string_list(snapshot, "manifests", where)
    _check_lineage(snapshot, where)


def check_add_snapshot(update: Document, where: str) -> None:
    path = f"{where}.snapshot"
    check_snapshot(get_object(get_field(update, "snapshot", where), path), path)


def add_snapshot(builder: TableBuilder, update: Document) -> None:
    snapshot = update["snapshot"]
    _check_table_is_described(builder)
    snapshot_id = snapshot["snapshot-id"]
    if snapshot_id in builder.snapshots:
        raise InvalidMetadata(f"Snapshot already exists for id: {snapshot_id}")
    _advance_sequence_number(builder, snapshot)
    if builder.version > 2:
        _advance_next_row_id(builder, snapshot)
    builder.snapshots[snapshot_id] = snapshot
    builder.added_snapshots.add(snapshot_id)
    builder.has_changed = True


def check_remove_snapshots(update: Document, where: str) -> None:
    get_longs(update, "snapshot-ids", where)


def remove_snapshots(builder: TableBuilder, update: Document) -> None:
    """Also removes references to the snapshots and their statistics; ignores unknown ids."""
    for snapshot_id in update["snapshot-ids"]:
        if builder.snapshots.pop(snapshot_id, None) is not None:
            builder.statistics.pop(snapshot_id, None)
            builder.partition_statistics.pop(snapshot_id, None)
            builder.has_changed = builder.has_removed_snapshots = True
    dangling = [
        name for name, ref in builder.document["refs"].items() if ref["snapshot-id"] not in builder.snapshots
    ]
    for name in dangling:
        drop_ref(builder, name)


def _check_lineage(snapshot: Document, where: str) -> None:
    first_row_id = find_long(snapshot, "first-row-id", where)
    added_rows = find_long(snapshot, "added-rows", where)
    if first_row_id is not None and first_row_id < 0:
        raise InvalidMetadata(f"Invalid first-row-id (cannot be negative): {first_row_id}")
    if added_rows is not None and added_rows < 0:
        raise InvalidMetadata(f"Invalid added-rows (cannot be negative): {added_rows}")
    if first_row_id is not None and added_rows is None:
        raise InvalidMetadata("Invalid added-rows (required when first-row-id is set): null")


def _check_table_is_described(builder: TableBuilder) -> None:
    needed = {"schemas": "schema", "partition-specs": "partition spec", "sort-orders": "sort order"}
    for key, label in needed.items():
        if not builder.document[key]:
            raise InvalidMetadata(f"Attempting to add a snapshot before a {label} is added")


def _advance_sequence_number(builder: TableBuilder, snapshot: Document) -> None:
    sequence = snapshot.get("sequence-number") or 0
    if builder.version == 1:
        if sequence != 0:
            raise InvalidMetadata(f"Sequence number must be 0 in v1: {sequence}")
        return
    last = builder.document["last-sequence-number"]
    if sequence <= last and snapshot.get("parent-snapshot-id") is not None:
        raise _retryable(
            f"Cannot add snapshot with sequence number {sequence} older than last sequence number {last}"
        )
    builder.document["last-sequence-number"] = max(last, sequence)


def _advance_next_row_id(builder: TableBuilder, snapshot: Document) -> None:
    first_row_id = snapshot.get("first-row-id")
    if first_row_id is None:
        raise InvalidMetadata("Cannot add a snapshot: first-row-id is null")
    next_row_id = builder.document["next-row-id"]
    if first_row_id < next_row_id:
        raise _retryable(
            f"Cannot add a snapshot, first-row-id is behind table next-row-id: {first_row_id} < {next_row_id}"
        )
    # Counts from the snapshot's own first row id: row ids stay unique even if it skipped some.
    next_free = first_row_id + snapshot["added-rows"]
    if next_free >= _LONG_LIMIT:
        raise InvalidMetadata(f"Invalid added-rows (no row ids are left): {snapshot['added-rows']}")
    builder.document["next-row-id"] = next_free


def _retryable(problem: str) -> CommitConflict:
    return CommitConflict(f"Validation failed, please retry: {problem}")
