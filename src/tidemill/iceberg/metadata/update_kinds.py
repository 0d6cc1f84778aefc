"""The registry of table updates, by the action names that clients send."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata import attributes, partitions, schemas, snapshots, sort_orders
from tidemill.iceberg.metadata.builders import TableBuilder
from tidemill.iceberg.metadata.json_fields import check_depth, get_object, get_string, without_nulls
from tidemill.iceberg.model.entries import Document


@dataclass(frozen=True, slots=True)
class UpdateKind:
    """`check` validates the update alone; `apply` relies on that and applies it to the table."""

    check: Callable[[Document, str], None]
    apply: Callable[[TableBuilder, Document], None]


UPDATE_KINDS: Final[Mapping[str, UpdateKind]] = {
    "assign-uuid": UpdateKind(attributes.check_assign_uuid, attributes.assign_uuid),
    "upgrade-format-version": UpdateKind(attributes.check_upgrade, attributes.upgrade),
    "add-schema": UpdateKind(schemas.check_add_schema, schemas.add_schema),
    "set-current-schema": UpdateKind(schemas.check_set_current_schema, schemas.set_current_schema),
    "remove-schemas": UpdateKind(schemas.check_remove_schemas, schemas.remove_schemas),
    "add-spec": UpdateKind(partitions.check_add_spec, partitions.add_spec),
    "set-default-spec": UpdateKind(partitions.check_set_default_spec, partitions.set_default_spec),
    "remove-partition-specs": UpdateKind(partitions.check_remove_specs, partitions.remove_specs),
    "add-sort-order": UpdateKind(sort_orders.check_add_order, sort_orders.add_order),
    "set-default-sort-order": UpdateKind(sort_orders.check_set_default_order, sort_orders.set_default_order),
    "add-snapshot": UpdateKind(snapshots.check_add_snapshot, snapshots.add_snapshot),
    "remove-snapshots": UpdateKind(snapshots.check_remove_snapshots, snapshots.remove_snapshots),
    "set-snapshot-ref": UpdateKind(snapshots.check_set_ref, snapshots.set_ref),
    "remove-snapshot-ref": UpdateKind(snapshots.check_remove_ref, snapshots.remove_ref),
    "set-statistics": UpdateKind(snapshots.check_set_statistics, snapshots.set_statistics),
    "remove-statistics": UpdateKind(snapshots.check_snapshot_id, snapshots.remove_statistics),
    "set-partition-statistics": UpdateKind(
        snapshots.check_set_partition_statistics, snapshots.set_partition_statistics
    ),
    "remove-partition-statistics": UpdateKind(
        snapshots.check_snapshot_id, snapshots.remove_partition_statistics
    ),
    "set-location": UpdateKind(attributes.check_set_location, attributes.set_location),
    "set-properties": UpdateKind(attributes.check_set_properties, attributes.set_properties),
    "remove-properties": UpdateKind(attributes.check_remove_properties, attributes.remove_properties),
    "add-encryption-key": UpdateKind(attributes.check_add_key, attributes.add_key),
    "remove-encryption-key": UpdateKind(attributes.check_remove_key, attributes.remove_key),
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
