"""The registry of table updates, by the action names that clients send."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata import (
    partitions,
    properties,
    references,
    schema_updates,
    snapshots,
    sort_orders,
    statistics,
    table_attributes,
)
from tidemill.iceberg.metadata.json_fields import check_depth, get_object, get_string, without_nulls
from tidemill.iceberg.metadata.table_builder import TableBuilder
from tidemill.iceberg.model.entries import Document


@dataclass(frozen=True, slots=True)
class UpdateKind:
    """`check` validates the update alone; `apply` relies on that and applies it to the table."""

    check: Callable[[Document, str], None]
    apply: Callable[[TableBuilder, Document], None]


UPDATE_KINDS: Final[Mapping[str, UpdateKind]] = {
    "assign-uuid": UpdateKind(table_attributes.check_assign_uuid, table_attributes.assign_uuid),
    "upgrade-format-version": UpdateKind(table_attributes.check_upgrade, table_attributes.upgrade),
    "add-schema": UpdateKind(schema_updates.check_add_schema, schema_updates.add_schema),
    "set-current-schema": UpdateKind(
        schema_updates.check_set_current_schema, schema_updates.set_current_schema
    ),
    "remove-schemas": UpdateKind(schema_updates.check_remove_schemas, schema_updates.remove_schemas),
    "add-spec": UpdateKind(partitions.check_add_spec, partitions.add_spec),
    "set-default-spec": UpdateKind(partitions.check_set_default_spec, partitions.set_default_spec),
    "remove-partition-specs": UpdateKind(partitions.check_remove_specs, partitions.remove_specs),
    "add-sort-order": UpdateKind(sort_orders.check_add_order, sort_orders.add_order),
    "set-default-sort-order": UpdateKind(sort_orders.check_set_default_order, sort_orders.set_default_order),
    "add-snapshot": UpdateKind(snapshots.check_add_snapshot, snapshots.add_snapshot),
    "remove-snapshots": UpdateKind(snapshots.check_remove_snapshots, snapshots.remove_snapshots),
    "set-snapshot-ref": UpdateKind(references.check_set_ref, references.set_ref),
    "remove-snapshot-ref": UpdateKind(references.check_remove_ref, references.remove_ref),
    "set-statistics": UpdateKind(statistics.check_set_statistics, statistics.set_statistics),
    "remove-statistics": UpdateKind(statistics.check_snapshot_id, statistics.remove_statistics),
    "set-partition-statistics": UpdateKind(
        statistics.check_set_partition_statistics, statistics.set_partition_statistics
    ),
    "remove-partition-statistics": UpdateKind(
        statistics.check_snapshot_id, statistics.remove_partition_statistics
    ),
    "set-location": UpdateKind(table_attributes.check_set_location, table_attributes.set_location),
    "set-properties": UpdateKind(properties.check_set_properties, properties.set_properties),
    "remove-properties": UpdateKind(properties.check_remove_properties, properties.remove_properties),
    "add-encryption-key": UpdateKind(table_attributes.check_add_key, table_attributes.add_key),
    "remove-encryption-key": UpdateKind(table_attributes.check_remove_key, table_attributes.remove_key),
}
_VIEW_UPDATES: Final[Mapping[str, str]] = {
    "add-view-version": "AddViewVersion",
    "set-current-view-version": "SetCurrentViewVersion",
}


def checked_updates(updates: Sequence[Any]) -> list[tuple[UpdateKind, Document]]:
    """Every update with its kind; raises InvalidMetadata if one is unknown or malformed."""
    return [_checked(update, f"updates[{index}]") for index, update in enumerate(updates)]


def _checked(raw: Any, where: str) -> tuple[UpdateKind, Document]:
    update = get_object(raw, where)
    if update.get("action") is None:
        raise InvalidMetadata(f"Cannot parse metadata update. Missing field: {where}.action")
    action = get_string(update, "action", where).lower()
    if action in _VIEW_UPDATES:
        raise InvalidMetadata(f"Cannot apply update {_VIEW_UPDATES[action]} to a table: {where}")
    kind = UPDATE_KINDS.get(action)
    if kind is None:
        raise InvalidMetadata(f"Cannot convert metadata update action to json: {where}: {action:.100}")
    check_depth(update, where)
    kind.check(update, where)
    return kind, without_nulls(update)
