"""Scan requests, and pinning them to one state of the table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, is_parent_ancestor_of

from tidemill.errors import InvalidInput

NO_SNAPSHOT: Final = -1
"""Pins a scan to the state in which the table had no snapshot."""


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What to scan: one snapshot, the appends between two, or the current snapshot of the main branch.

    `filter` may accept more rows than the client wants, never fewer. `schema_id` is set in a pinned request:
    the names in the filter refer to that schema.
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
    """A scan is either of one snapshot or incremental, and an incremental one needs both ends."""
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
    """The request pinned to the current state, so it means the same after later commits."""
    check_snapshots(request)
    snapshot = _scanned_snapshot(table, request)
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


def _scanned_snapshot(table: TableMetadata, request: ScanRequest) -> Snapshot | None:
    """The snapshot to scan, or the last one of an incremental scan; None for an empty table."""
    if request.snapshot_id is not None:
        is_empty = request.schema_id is not None and request.snapshot_id == NO_SNAPSHOT
        return None if is_empty else _get_snapshot(table, request.snapshot_id, "snapshot-id")
    if request.start_snapshot_id is None or request.end_snapshot_id is None:
        return table.current_snapshot()
    end = _get_snapshot(table, request.end_snapshot_id, "end-snapshot-id")
    if not is_parent_ancestor_of(request.end_snapshot_id, request.start_snapshot_id, table):
        raise InvalidInput(
            "start-snapshot-id",
            f"Starting snapshot (exclusive) {request.start_snapshot_id} is not a parent ancestor of "
            f"end snapshot {request.end_snapshot_id}",
        )
    return end


def _get_snapshot(table: TableMetadata, snapshot_id: int, name: str) -> Snapshot:
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise InvalidInput(name, f"Cannot find snapshot with ID {snapshot_id}")
    return snapshot
