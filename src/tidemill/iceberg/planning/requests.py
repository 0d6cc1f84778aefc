"""What is to be scanned, and at which state of the table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, is_parent_ancestor_of

from tidemill.errors import InvalidInput

NO_SNAPSHOT: Final = -1
"""Pins a scan to a table that had no snapshot."""


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What to scan: one snapshot, what was appended between two, or the newest of the main branch.

    `filter` may let more rows through than the client wants, never fewer. `schema_id` is set in a pinned
    request, and tells which schema the names in the filter are of.
    """

    snapshot_id: int | None = None
    start_snapshot_id: int | None = None
    end_snapshot_id: int | None = None
    select: tuple[str, ...] | None = None
    filter: BooleanExpression = field(default_factory=AlwaysTrue)
    is_case_sensitive: bool = True
    uses_snapshot_schema: bool = False
    stats_fields: tuple[str, ...] = ()
    min_rows_requested: int | None = None
    schema_id: int | None = None

    @property
    def is_incremental(self) -> bool:
        return self.start_snapshot_id is not None or self.end_snapshot_id is not None


def check_snapshots(request: ScanRequest) -> None:
    """Point in time or incremental, and the latter with both ends."""
    if request.is_incremental and request.snapshot_id is not None:
        raise InvalidInput(
            "snapshot-id",
            "cannot be given together with start-snapshot-id or end-snapshot-id; give one or both",
        )
    if request.is_incremental and (request.start_snapshot_id is None or request.end_snapshot_id is None):
        missing = "start-snapshot-id" if request.start_snapshot_id is None else "end-snapshot-id"
        raise InvalidInput(
            missing, "is missing; an incremental scan needs start-snapshot-id and end-snapshot-id"
        )


def pinned(table: TableMetadata, request: ScanRequest) -> ScanRequest:
    """The same request for this very state: it means the same when the table has moved on."""
    check_snapshots(request)
    snapshot = _snapshot(table, request)
    schema_id = request.schema_id
    if schema_id is None:
        schema_id = table.current_schema_id
        if request.uses_snapshot_schema and snapshot is not None and snapshot.schema_id is not None:
            schema_id = snapshot.schema_id
    if all(schema.schema_id != schema_id for schema in table.schemas):
        raise InvalidInput("schema-id", f"The table has no schema {schema_id}")
    if request.is_incremental:
        return replace(request, schema_id=schema_id)
    snapshot_id = NO_SNAPSHOT if snapshot is None else snapshot.snapshot_id
    return replace(request, schema_id=schema_id, snapshot_id=snapshot_id)


def _snapshot(table: TableMetadata, request: ScanRequest) -> Snapshot | None:
    """The one whose state is scanned, or the last of an incremental scan; None for an empty table."""
    if request.snapshot_id is not None:
        is_empty = request.schema_id is not None and request.snapshot_id == NO_SNAPSHOT
        return None if is_empty else _get(table, request.snapshot_id, "snapshot-id")
    if request.start_snapshot_id is None or request.end_snapshot_id is None:
        return table.current_snapshot()
    end = _get(table, request.end_snapshot_id, "end-snapshot-id")
    if not is_parent_ancestor_of(request.end_snapshot_id, request.start_snapshot_id, table):
        raise InvalidInput(
            "start-snapshot-id",
            f"Starting snapshot (exclusive) {request.start_snapshot_id} is not a parent ancestor of "
            f"end snapshot {request.end_snapshot_id}",
        )
    return end


def _get(table: TableMetadata, snapshot_id: int, name: str) -> Snapshot:
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise InvalidInput(name, f"Cannot find snapshot with ID {snapshot_id}")
    return snapshot
