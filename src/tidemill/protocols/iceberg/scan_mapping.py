"""Translates scan requests, plan tokens and scan tasks from and to JSON."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.types import IcebergType, PrimitiveType

from tidemill.errors import InvalidInput, Unsupported
from tidemill.iceberg.model.entries import Entry
from tidemill.iceberg.planning import tokens
from tidemill.iceberg.planning.deletes import delete_key
from tidemill.iceberg.planning.requests import ScanRequest, check_snapshots
from tidemill.iceberg.planning.scans import TASKS_PER_RESPONSE, FileTask, Plan
from tidemill.iceberg.planning.v3_manifests import (
    CONTENT_OFFSET,
    CONTENT_SIZE,
    FIRST_ROW_ID,
    REFERENCED_DATA_FILE,
    extra_field,
)
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.http.responses import without_nulls
from tidemill.protocols.iceberg.expressions import Filter, Json, filter_json, read_filter
from tidemill.protocols.iceberg.single_values import value_json

MIN_LONG: Final = -(2**63)
ALL_FIELDS: Final = "*"
CONTENTS: Final = {
    DataFileContent.DATA: "data",
    DataFileContent.POSITION_DELETES: "position-deletes",
    DataFileContent.EQUALITY_DELETES: "equality-deletes",
}
# Pinned requests have this in addition to the fields of the specification.
SCHEMA_ID: Final = "schema-id"
TOKEN_FIELDS: Final = (
    "select",
    "filter",
    "case-sensitive",
    "use-snapshot-schema",
    "stats-fields",
    "min-rows-requested",
    "start-snapshot-id",
    "end-snapshot-id",
)


@dataclass(frozen=True, slots=True)
class RequestedScan:
    """A scan request: as it is planned, the filter as the client sent it, and the body for tokens."""

    request: ScanRequest
    filter: Filter
    body: Mapping[str, Any]


def read_scan(body: Fields) -> RequestedScan:
    # A null filter is an error: ignoring it would return more than requested.
    scan_filter = read_filter(body.raw("filter")) if "filter" in body.values else read_filter(raw=True)
    request = ScanRequest(
        snapshot_id=body.integer("snapshot-id", MIN_LONG),
        start_snapshot_id=body.integer("start-snapshot-id", MIN_LONG),
        end_snapshot_id=body.integer("end-snapshot-id", MIN_LONG),
        select=body.texts("select"),
        filter=scan_filter.expression,
        is_case_sensitive=body.flag("case-sensitive") is not False,
        uses_snapshot_schema=body.flag("use-snapshot-schema") is True,
        stats_fields=body.texts("stats-fields") or (),
        min_rows_requested=body.integer("min-rows-requested", 0),
    )
    check_snapshots(request)
    return RequestedScan(request, scan_filter, {key: body.raw(key) for key in TOKEN_FIELDS if body.has(key)})


def plan_id(entry: Entry, scan: RequestedScan, plan: Plan) -> str:
    return tokens.encode({"scan": _pinned_body(scan, plan)}, entry.entry_id)


def plan_tasks(entry: Entry, scan: RequestedScan, plan: Plan) -> list[str]:
    """Tokens for the tasks that do not fit into the first response."""
    body = _pinned_body(scan, plan)
    return [
        tokens.encode({"scan": body, "first": first}, entry.entry_id)
        for first in range(TASKS_PER_RESPONSE, len(plan.tasks), TASKS_PER_RESPONSE)
    ]


def read_plan_id(entry: Entry, token: str) -> RequestedScan | None:
    payload = tokens.decode(token, entry.entry_id)
    return None if payload is None or "first" in payload else _scan_in(payload)


def read_plan_task(entry: Entry, token: str) -> tuple[RequestedScan, int] | None:
    payload = tokens.decode(token, entry.entry_id)
    if payload is None or not isinstance(payload.get("first"), int):
        return None
    scan = _scan_in(payload)
    return None if scan is None else (scan, payload["first"])


def tasks_json(scan: RequestedScan, plan: Plan, first: int = 0) -> dict[str, Any]:
    """One batch of tasks, with the delete files they refer to."""
    tasks = plan.tasks[first : first + TASKS_PER_RESPONSE]
    deletes = {delete_key(file): file for task in tasks for file in task.deletes}
    indexes = {key: index for index, key in enumerate(deletes)}
    residual = _residuals(scan)
    body: dict[str, Any] = {}
    if deletes:
        body["delete-files"] = [_file_json(plan, file) for file in deletes.values()]
    stats = _stats_fields(plan)
    body["file-scan-tasks"] = [
        without_nulls(
            {
                "data-file": _file_json(plan, task.data_file) | _stats_json(task.data_file, stats),
                "delete-file-references": [indexes[delete_key(file)] for file in task.deletes] or None,
                "residual-filter": residual(task),
            }
        )
        for task in tasks
    ]
    return body


def _pinned_body(scan: RequestedScan, plan: Plan) -> dict[str, Any]:
    pins = {"snapshot-id": plan.request.snapshot_id, SCHEMA_ID: plan.request.schema_id}
    return {**scan.body, **without_nulls(pins)}


def _scan_in(payload: Mapping[str, Any]) -> RequestedScan | None:
    try:
        scan, schema_id = read_scan(Fields(payload["scan"])), payload["scan"][SCHEMA_ID]
    except (InvalidInput, KeyError, TypeError):
        return None
    return replace(scan, request=replace(scan.request, schema_id=schema_id))


def _residuals(scan: RequestedScan) -> Callable[[FileTask], Json]:
    if not scan.filter.is_exact:
        return lambda _: scan.filter.json
    return lambda task: filter_json(task.residual)


def _file_json(plan: Plan, file: DataFile) -> dict[str, Any]:
    types = plan.partition_types[file.spec_id]
    is_data = file.content == DataFileContent.DATA
    return without_nulls(
        {
            "spec-id": file.spec_id,
            "content": CONTENTS[file.content],
            "file-path": file.file_path,
            "file-format": file.file_format.value.lower(),
            "partition": [value_json(kind, file.partition[index]) for index, kind in enumerate(types)],
            "file-size-in-bytes": file.file_size_in_bytes,
            "record-count": file.record_count,
            "key-metadata": None if file.key_metadata is None else file.key_metadata.hex().upper(),
            "split-offsets": file.split_offsets,
            "sort-order-id": file.sort_order_id,
            "equality-ids": None if is_data else file.equality_ids,
            "first-row-id": extra_field(file, FIRST_ROW_ID) if is_data else None,
            "referenced-data-file": None if is_data else extra_field(file, REFERENCED_DATA_FILE),
            "content-offset": None if is_data else extra_field(file, CONTENT_OFFSET),
            "content-size-in-bytes": None if is_data else extra_field(file, CONTENT_SIZE),
        }
    )


def _stats_fields(plan: Plan) -> Mapping[int, IcebergType]:
    """The fields to return statistics for, by id; ignores names that the schema does not have."""
    requested, is_case_sensitive = plan.request.stats_fields, plan.request.is_case_sensitive
    names = set(requested) if is_case_sensitive else {name.lower() for name in requested}
    fields = {
        field_id: (plan.schema.find_column_name(field_id) or "", plan.schema.find_type(field_id))
        for field_id in plan.schema.field_ids
    }
    return {
        field_id: kind
        for field_id, (name, kind) in fields.items()
        if ALL_FIELDS in names or (name if is_case_sensitive else name.lower()) in names
    }


def _stats_json(file: DataFile, fields: Mapping[int, IcebergType]) -> dict[str, Any]:
    if not fields:
        return {}
    counts = {
        "column-sizes": file.column_sizes,
        "value-counts": file.value_counts,
        "null-value-counts": file.null_value_counts,
        "nan-value-counts": file.nan_value_counts,
    }
    bounds = {"lower-bounds": file.lower_bounds, "upper-bounds": file.upper_bounds}
    stats = {
        name: _id_map({key: count for key, count in (found or {}).items() if key in fields})
        for name, found in counts.items()
    }
    for name, found in bounds.items():
        stats[name] = _id_map(_bounds(found or {}, fields))
    return {name: value for name, value in stats.items() if value["keys"]}


def _bounds(found: Mapping[int, bytes], fields: Mapping[int, IcebergType]) -> dict[int, Any]:
    bounds = {}
    for key, kind in fields.items():
        # Skips a malformed bound: it may have the column's former type.
        with suppress(Unsupported, ValueError, TypeError, struct.error):
            if key in found and isinstance(kind, PrimitiveType):
                bounds[key] = value_json(kind, from_bytes(kind, found[key]))
    return bounds


def _id_map(values: Mapping[int, Any]) -> dict[str, Sequence[Any]]:
    return {"keys": list(values), "values": list(values.values())}
