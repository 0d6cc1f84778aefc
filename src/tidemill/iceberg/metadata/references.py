"""Branches and tags, and the snapshot log of the main branch."""

from __future__ import annotations

from typing import Any, Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.json_fields import abbreviated, find_int, find_long, get_long, get_string
from tidemill.iceberg.metadata.table_builder import MAIN, TableBuilder
from tidemill.iceberg.model.entries import Document

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
