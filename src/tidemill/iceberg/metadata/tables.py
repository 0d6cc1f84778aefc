"""Metadata documents of tables: creates new ones, applies commits, and selects what is served."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.ids import find_by_id
from tidemill.iceberg.metadata.json_fields import (
    check_depth,
    get_object,
    get_string_map,
    without_nulls,
)
from tidemill.iceberg.metadata.partitions import check_spec, check_spec_columns, fresh_spec
from tidemill.iceberg.metadata.properties import (
    SUPPORTED_VERSION,
    deletes_old_metadata,
    max_previous_versions,
    new_properties,
    requested_version,
)
from tidemill.iceberg.metadata.references import prune_snapshot_log
from tidemill.iceberg.metadata.schemas import check_version, fresh_schema, get_columns
from tidemill.iceberg.metadata.sort_orders import check_order, check_order_columns, fresh_order
from tidemill.iceberg.metadata.table_attributes import without_trailing_slashes
from tidemill.iceberg.metadata.table_builder import TableBuilder, empty_document, implied_refs, with_defaults
from tidemill.iceberg.metadata.table_documents import check_table
from tidemill.iceberg.metadata.table_updates import UPDATE_KINDS, UpdateKind, checked_updates
from tidemill.iceberg.model.entries import Document, NewTable

__all__ = ["changed_table", "check_table", "expired_metadata_files", "new_table", "refs_only"]


def new_table(new: NewTable, location: str, table_uuid: UUID, now_ms: int) -> Document:
    """The document of a new table; assigns fresh ids throughout."""
    properties = get_string_map({"properties": new.properties}, "properties", "table")
    version = requested_version(properties)
    _check_description(new)
    schema, fresh_ids = fresh_schema(without_nulls(new.schema), count(1).__next__)
    columns = get_columns(schema, "schema")
    check_version(columns, version)
    spec = fresh_spec(without_nulls(new.partition_spec or {"fields": []}), fresh_ids, columns)
    order = fresh_order(without_nulls(new.write_order or {"fields": []}), fresh_ids, columns)
    partition_ids = [field["field-id"] for field in spec["fields"]]
    document = empty_document(version, now_ms)
    document.update(
        {
            "table-uuid": str(table_uuid),
            "location": without_trailing_slashes(location),
            "last-column-id": len(fresh_ids),
            "schemas": [schema],
            "partition-specs": [spec],
            "last-partition-id": max([document["last-partition-id"], *partition_ids]),
            "default-sort-order-id": order["order-id"],
            "sort-orders": [order],
            "properties": new_properties(properties, version, (column.name for column in columns.values())),
        }
    )
    _mirror_for_v1(document)
    return document


def changed_table(
    base: Document | None,
    updates: Sequence[Document],
    *,
    default_location: str,
    now_ms: int,
    base_location: str | None,
) -> Document:
    """The document after the updates, or `base` itself if they change nothing; without a base, a new one."""
    checked = checked_updates(updates)
    if base is None:
        builder = TableBuilder(empty_document(_initial_version(checked), now_ms), now_ms, is_new=True)
    else:
        # Never goes back in time, whatever the clock says: readers reject logs that are not in order.
        builder = TableBuilder(with_defaults(base), max(now_ms, base["last-updated-ms"]), is_new=False)
    for kind, update in checked:
        kind.apply(builder, update)
    if base is not None and not builder.has_changed:
        return base
    if base is None:
        _fill_in_defaults(builder, default_location)
    else:
        _log_previous_file(builder, base, base_location)
    _finish(builder)
    return builder.document


def expired_metadata_files(base: Document, changed: Document) -> Sequence[str]:
    """Metadata files that dropped out of the metadata log, if the table asks for their removal."""
    if not deletes_old_metadata(changed.get("properties") or {}):
        return ()
    logged = {entry["metadata-file"] for entry in changed.get("metadata-log") or ()}
    log = base.get("metadata-log") or ()
    return [entry["metadata-file"] for entry in log if entry["metadata-file"] not in logged]


def refs_only(metadata: Document) -> Document:
    """The document without snapshots that no branch or tag points to."""
    referenced = {ref["snapshot-id"] for ref in implied_refs(metadata).values()}
    snapshots = metadata.get("snapshots") or []
    remaining = [snapshot for snapshot in snapshots if snapshot["snapshot-id"] in referenced]
    return metadata if len(remaining) == len(snapshots) else {**metadata, "snapshots": remaining}


def _check_description(new: NewTable) -> None:
    parts: dict[str, Any] = {
        "schema": new.schema,
        "partition-spec": new.partition_spec,
        "write-order": new.write_order,
    }
    for name, part in parts.items():
        if part is not None or name == "schema":
            check_depth(get_object(part, name), name)
    get_columns(new.schema, "schema")
    if new.partition_spec is not None:
        check_spec(new.partition_spec, "partition-spec")
    if new.write_order is not None:
        check_order(new.write_order, "write-order")


def _initial_version(updates: Sequence[tuple[UpdateKind, Document]]) -> int:
    """A table created by a commit starts with the version of its first upgrade."""
    upgrade = UPDATE_KINDS["upgrade-format-version"]
    version = next((update["format-version"] for kind, update in updates if kind is upgrade), 2)
    if not 1 <= version <= SUPPORTED_VERSION:
        raise InvalidMetadata(f"Unsupported format version: v{version} (supported: v{SUPPORTED_VERSION})")
    return int(version)


def _fill_in_defaults(builder: TableBuilder, default_location: str) -> None:
    """Assigns the UUID and location that a creating commit may leave to the catalog."""
    document = builder.document
    if document["table-uuid"] is None:
        document["table-uuid"] = str(uuid4())
    if document["location"] is None:
        document["location"] = without_trailing_slashes(default_location)
    builder.has_new_current_ids = True


def _log_previous_file(builder: TableBuilder, base: Document, base_location: str | None) -> None:
    """Appends the file of the base to the metadata log, and trims the log."""
    document = builder.document
    document["last-updated-ms"] = builder.now_ms
    limit = max_previous_versions(document["properties"])
    if base_location is not None:
        entry = {"timestamp-ms": base["last-updated-ms"], "metadata-file": base_location}
        document["metadata-log"] = [*document["metadata-log"], entry][-limit:]


def _finish(builder: TableBuilder) -> None:
    builder.write_back()
    prune_snapshot_log(builder)
    if builder.has_new_current_ids:
        _check_current_ids(builder)
    _mirror_for_v1(builder.document)


def _check_current_ids(builder: TableBuilder) -> None:
    """Checks that the default spec and order fit the current schema."""
    document = builder.document
    columns = builder.current_columns
    if columns is None:
        raise InvalidMetadata(f"Cannot find schema with current-schema-id={document['current-schema-id']}")
    spec = find_by_id(document["partition-specs"], "spec-id", document["default-spec-id"])
    if spec is None:
        raise InvalidMetadata("Partition specs cannot be null or empty")
    order = find_by_id(document["sort-orders"], "order-id", document["default-sort-order-id"])
    if order is None:
        raise InvalidMetadata("Sort orders cannot be null or empty")
    check_spec_columns(spec, columns)
    check_order_columns(order, columns)


def _mirror_for_v1(document: Document) -> None:
    """Early v1 readers look only for the single `schema` and `partition-spec` fields."""
    if document["format-version"] == 1:
        schemas, specs = document["schemas"], document["partition-specs"]
        document["schema"] = find_by_id(schemas, "schema-id", document["current-schema-id"])
        spec = find_by_id(specs, "spec-id", document["default-spec-id"])
        document["partition-spec"] = None if spec is None else spec["fields"]
