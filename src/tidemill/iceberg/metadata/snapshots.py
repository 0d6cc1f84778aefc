"""Snapshots, the branches and tags that point to them, their log and their statistics."""

from __future__ import annotations

from typing import Any, Final

from tidemill.iceberg.errors import CommitConflict, InvalidMetadata
from tidemill.iceberg.metadata.builders import MAIN, TableBuilder
from tidemill.iceberg.metadata.json_fields import (
    abbreviated,
    find_int,
    find_long,
    find_string,
    get_field,
    get_ints,
    get_long,
    get_longs,
    get_object,
    get_objects,
    get_string,
    get_string_list,
    get_string_map,
)
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


_CLOCK_SKEW_MS: Final = 60_000
_TAG: Final = "tag"


def check_ref(ref: Document, where: str) -> None:
    get_long(ref, "snapshot-id", where)
    kind = get_string(ref, "type", where).lower()
    if kind not in ("branch", _TAG):
        raise InvalidMetadata(f"Invalid snapshot ref type: {where}.type: {abbreviated(ref['type'])}")
    min_snapshots = find_int(ref, "min-snapshots-to-keep", where)
    snapshot_age = find_long(ref, "max-snapshot-age-ms", where)
    ref_age = find_long(ref, "max-ref-age-ms", where)
    if kind == _TAG and min_snapshots is not None:
        raise InvalidMetadata("Tags do not support setting minSnapshotsToKeep")
    if kind == _TAG and snapshot_age is not None:
        raise InvalidMetadata("Tags do not support setting maxSnapshotAgeMs")
    _check_positive(min_snapshots, "Min snapshots to keep must be greater than 0")
    _check_positive(snapshot_age, "Max snapshot age must be greater than 0 ms")
    _check_positive(ref_age, "Max reference age must be greater than 0")


def check_set_ref(update: Document, where: str) -> None:
    get_string(update, "ref-name", where)
    check_ref(update, where)


def set_ref(builder: TableBuilder, update: Document) -> None:
    name = update["ref-name"]
    ref = {
        key: value for key, value in update.items() if key not in ("action", "ref-name") and value is not None
    }
    ref["type"] = ref["type"].lower()
    if builder.document["refs"].get(name) == ref:
        return
    if ref["snapshot-id"] not in builder.snapshots:
        raise InvalidMetadata(f"Cannot set {name} to unknown snapshot: {ref['snapshot-id']}")
    if name == MAIN:
        if ref["type"] == _TAG:
            raise InvalidMetadata(f"Cannot set {MAIN} to a tag, it must be a branch")
        _make_current(builder, ref["snapshot-id"])
    builder.put("refs", {**builder.document["refs"], name: ref})


def check_remove_ref(update: Document, where: str) -> None:
    get_string(update, "ref-name", where)


def remove_ref(builder: TableBuilder, update: Document) -> None:
    drop_ref(builder, update["ref-name"])


def drop_ref(builder: TableBuilder, name: str) -> None:
    refs = builder.document["refs"]
    if name not in refs:
        return
    builder.put("refs", {known: ref for known, ref in refs.items() if known != name})
    if name == MAIN:
        builder.set_current_snapshot(None)


def prune_snapshot_log(builder: TableBuilder) -> None:
    """Drops snapshots that were current only within this commit, and everything before a removed snapshot."""
    current = builder.document["current-snapshot-id"]
    intermediate = (builder.current_snapshots & builder.added_snapshots) - {current}
    if intermediate or builder.has_removed_snapshots:
        log: list[Document] = []
        for entry in builder.document["snapshot-log"]:
            if entry["snapshot-id"] in builder.snapshots and entry["snapshot-id"] not in intermediate:
                log.append(entry)
            elif entry["snapshot-id"] not in builder.snapshots and builder.has_removed_snapshots:
                # A gap would make an older snapshot look current for longer than it was.
                log = []
        builder.document["snapshot-log"] = log
    if builder.current_snapshots:
        check_log_times(builder.document["snapshot-log"], builder.document["last-updated-ms"], "snapshot log")


def check_log_times(log: list[Document], updated_ms: int, label: str) -> None:
    """Readers reject a log that is not in order; allows one minute of clock skew."""
    last_ms: Any = None
    for entry in log:
        if last_ms is not None and entry["timestamp-ms"] - last_ms < -_CLOCK_SKEW_MS:
            raise InvalidMetadata(
                f"Expected sorted {label} entries: {entry['timestamp-ms']} comes after {last_ms}"
            )
        last_ms = entry["timestamp-ms"]
    if last_ms is not None and updated_ms - last_ms < -_CLOCK_SKEW_MS:
        raise InvalidMetadata(
            f"Invalid update timestamp {updated_ms}: before last {label} entry at {last_ms}"
        )


def _make_current(builder: TableBuilder, snapshot_id: int) -> None:
    """Makes the snapshot current: an existing one as of now, one from this commit as of its creation."""
    is_added = snapshot_id in builder.added_snapshots
    at_ms = builder.snapshots[snapshot_id]["timestamp-ms"] if is_added else builder.now_ms
    entry = {"timestamp-ms": at_ms, "snapshot-id": snapshot_id}
    builder.put("snapshot-log", [*builder.document["snapshot-log"], entry])
    builder.current_snapshots.add(snapshot_id)
    builder.set_current_snapshot(snapshot_id)


def _check_positive(value: int | None, problem: str) -> None:
    if value is not None and value <= 0:
        raise InvalidMetadata(problem)


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
