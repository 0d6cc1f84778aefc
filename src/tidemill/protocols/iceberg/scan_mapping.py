"""Translates scan requests, plan tokens, scan tasks and the values in them from and to JSON."""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import orjson
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    PrimitiveType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tidemill.errors import InvalidInput, Unsupported
from tidemill.iceberg.model.entries import Entry
from tidemill.iceberg.planning.manifests import (
    CONTENT_OFFSET,
    CONTENT_SIZE,
    FIRST_ROW_ID,
    REFERENCED_DATA_FILE,
    delete_key,
    extra_field,
)
from tidemill.iceberg.planning.scans import TASKS_PER_RESPONSE, FileTask, Plan, ScanRequest, check_snapshots
from tidemill.protocols.http.call import without_nulls
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.iceberg.expressions import Filter, Json, filter_json, read_filter

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
    return encode_token({"scan": _pinned_body(scan, plan)}, entry.entry_id)


def plan_tasks(entry: Entry, scan: RequestedScan, plan: Plan) -> list[str]:
    """Tokens for the tasks that do not fit into the first response."""
    body = _pinned_body(scan, plan)
    return [
        encode_token({"scan": body, "first": first}, entry.entry_id)
        for first in range(TASKS_PER_RESPONSE, len(plan.tasks), TASKS_PER_RESPONSE)
    ]


def read_plan_id(entry: Entry, token: str) -> RequestedScan | None:
    payload = decode_token(token, entry.entry_id)
    return None if payload is None or "first" in payload else _scan_in(payload)


def read_plan_task(entry: Entry, token: str) -> tuple[RequestedScan, int] | None:
    payload = decode_token(token, entry.entry_id)
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


CHECK_BYTES: Final = 12
MAX_TOKEN_LENGTH: Final = 2**20
MAX_PAYLOAD_BYTES: Final = 16 * 2**20


def encode_token(payload: Mapping[str, Any], table_id: UUID) -> str:
    """Tokens are checksummed, not secret: a client could request everything in them directly."""
    packed = zlib.compress(orjson.dumps(payload, option=orjson.OPT_SORT_KEYS), 9)
    return base64.urlsafe_b64encode(_checksum(packed, table_id) + packed).decode().rstrip("=")


def decode_token(token: str, table_id: UUID) -> dict[str, Any] | None:
    """None unless `encode_token` made the token for this table."""
    if len(token) > MAX_TOKEN_LENGTH or not token.isascii():
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        if raw[:CHECK_BYTES] != _checksum(raw[CHECK_BYTES:], table_id):
            return None
        payload: dict[str, Any] = orjson.loads(_decompressed(raw[CHECK_BYTES:]))
    except (binascii.Error, ValueError, zlib.error):
        return None
    return payload


def _decompressed(data: bytes) -> bytes:
    reader = zlib.decompressobj()
    payload = reader.decompress(data, MAX_PAYLOAD_BYTES)
    if not reader.eof:
        raise ValueError("is cut off or too long")
    return payload


def _checksum(packed: bytes, table_id: UUID) -> bytes:
    return hashlib.sha256(table_id.bytes + packed).digest()[:CHECK_BYTES]


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY: Final = date(1970, 1, 1)
NANOS: Final = 1_000_000_000
UTC_OFFSET: Final = "+00:00"


def value_json(kind: IcebergType, value: Any) -> Any:
    """A partition value or bound, as pyiceberg reads it, as JSON of its type."""
    match value:
        case None | bool() | str():
            return value
        case Decimal():
            return _decimal(kind, value)
        case UUID():
            return str(value)
        case bytes():
            return str(UUID(bytes=value)) if isinstance(kind, UUIDType) else value.hex().upper()
        case float():
            # JSON has no infinities and NaN; Iceberg's own writer uses these strings.
            return value if math.isfinite(value) else _non_finite(value)
        case int():
            return _from_integer_within_calendar(kind, value)
        case date() | time() | datetime():
            return value.isoformat()
        case _:
            return str(value)


def _decimal(kind: IcebergType, value: Decimal) -> str:
    if isinstance(kind, DecimalType):
        value = value.quantize(Decimal(1).scaleb(-kind.scale))
    return f"{value:f}"


def _non_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _from_integer_within_calendar(kind: IcebergType, value: int) -> int | str:
    try:
        return _from_integer(kind, value)
    except OverflowError as error:
        raise Unsupported(f"The {kind} {value} is outside the supported years 1 to 9999") from error


def _from_integer(kind: IcebergType, value: int) -> int | str:
    """Converts days, micro- or nanoseconds since 1970 or since midnight."""
    match kind:
        case DateType():
            return _day(value)
        case TimeType():
            return (EPOCH + timedelta(microseconds=value)).time().isoformat(timespec="microseconds")
        case TimestampType():
            return _micros(value)
        case TimestamptzType():
            return _micros(value) + UTC_OFFSET
        case TimestampNanoType():
            return _nanos(value)
        case TimestamptzNanoType():
            return _nanos(value) + UTC_OFFSET
        case _:
            return value


def _day(days: int) -> str:
    return (EPOCH_DAY + timedelta(days=days)).isoformat()


def _micros(micros: int) -> str:
    moment = EPOCH + timedelta(microseconds=micros)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds")


def _nanos(nanos: int) -> str:
    seconds, rest = divmod(nanos, NANOS)
    moment = EPOCH + timedelta(seconds=seconds)
    return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}.{rest:09d}"
