"""Metadata documents of tables: creates new ones, applies commits, and validates registered ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.attributes import (
    SUPPORTED_VERSION,
    check_encryption_key,
    deletes_old_metadata,
    get_uuid,
    max_previous_versions,
    new_properties,
    requested_version,
    without_trailing_slashes,
)
from tidemill.iceberg.metadata.builders import MAIN, TableBuilder, empty_document, implied_refs, with_defaults
from tidemill.iceberg.metadata.json_fields import (
    abbreviated,
    check_depth,
    find_by_id,
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
    id_of,
    without_nulls,
)
from tidemill.iceberg.metadata.partitions import check_spec, check_spec_columns, check_spec_fields, fresh_spec
from tidemill.iceberg.metadata.schemas import check_version, current_columns, fresh_schema, get_columns
from tidemill.iceberg.metadata.snapshots import (
    check_log_times,
    check_partition_statistics,
    check_ref,
    check_snapshot,
    check_statistics,
    prune_snapshot_log,
)
from tidemill.iceberg.metadata.sort_orders import check_order, check_order_columns, fresh_order
from tidemill.iceberg.metadata.types import Column
from tidemill.iceberg.metadata.update_kinds import TABLE_UPDATES, UpdateKind, checked_table_updates
from tidemill.iceberg.model.entries import Document, NewTable


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
    checked = checked_table_updates(updates)
    if base is None:
        document = empty_document(_initial_version(checked), now_ms)
        builder = TableBuilder(document=document, now_ms=now_ms, is_new=True)
    else:
        # Never goes back in time, whatever the clock says: readers reject logs that are not in order.
        moment = max(now_ms, base["last-updated-ms"])
        builder = TableBuilder(document=with_defaults(base), now_ms=moment, is_new=False)
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


def _initial_version(updates: Sequence[tuple[UpdateKind[TableBuilder], Document]]) -> int:
    """A table created by a commit starts with the version of its first upgrade."""
    upgrade = TABLE_UPDATES["upgrade-format-version"]
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
    columns = current_columns(builder)
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
