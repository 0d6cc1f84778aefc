"""The registries of updates of tables and views, by the action names that clients send.

Every update has two functions in the module of its topic. `check` validates the update alone, before anything
is read: a malformed update must not end in a conflict, which clients answer by retrying. `apply` relies on
that and applies it to a builder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata import attributes, partitions, schemas, snapshots, sort_orders, view_updates
from tidemill.iceberg.metadata.builders import DocumentBuilder, TableBuilder, ViewBuilder
from tidemill.iceberg.metadata.json_fields import (
    abbreviated,
    check_depth,
    get_object,
    get_string,
    without_nulls,
)
from tidemill.iceberg.model.entries import Document

BuilderT = TypeVar("BuilderT", bound=DocumentBuilder)


@dataclass(frozen=True, slots=True)
class UpdateKind(Generic[BuilderT]):
    check: Callable[[Document, str], None]
    apply: Callable[[BuilderT, Document], None]


TABLE_UPDATES: Final[Mapping[str, UpdateKind[TableBuilder]]] = {
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
VIEW_UPDATES: Final[Mapping[str, UpdateKind[ViewBuilder]]] = {
    "assign-uuid": UpdateKind(view_updates.check_assign_uuid, view_updates.assign_uuid),
    "upgrade-format-version": UpdateKind(attributes.check_upgrade, view_updates.upgrade),
    "add-schema": UpdateKind(schemas.check_add_schema, view_updates.add_schema),
    "set-location": UpdateKind(view_updates.check_set_location, view_updates.set_location),
    "set-properties": UpdateKind(attributes.check_set_properties, attributes.set_properties),
    "remove-properties": UpdateKind(attributes.check_remove_properties, attributes.remove_properties),
    "add-view-version": UpdateKind(view_updates.check_add_version, view_updates.add_version),
    "set-current-view-version": UpdateKind(
        view_updates.check_set_current_version, view_updates.set_current_version
    ),
}


def checked_table_updates(updates: Sequence[Any]) -> list[tuple[UpdateKind[TableBuilder], Document]]:
    """Every update with its kind; raises InvalidMetadata if one is unknown or malformed."""
    return [_checked_table_update(update, f"updates[{index}]") for index, update in enumerate(updates)]


def checked_view_updates(updates: Sequence[Any]) -> list[tuple[UpdateKind[ViewBuilder], Document]]:
    """Every update with its kind; raises InvalidMetadata if one is unknown or malformed."""
    return [_checked_view_update(update) for update in updates]


def _checked_table_update(raw: Any, where: str) -> tuple[UpdateKind[TableBuilder], Document]:
    update = get_object(raw, where)
    if update.get("action") is None:
        raise InvalidMetadata(f"Cannot parse metadata update. Missing field: {where}.action")
    action = get_string(update, "action", where).lower()
    kind = TABLE_UPDATES.get(action)
    if kind is None and action in VIEW_UPDATES:
        name = "".join(word.capitalize() for word in action.split("-"))
        raise InvalidMetadata(f"Cannot apply update {name} to a table: {where}")
    if kind is None:
        raise InvalidMetadata(f"Cannot convert metadata update action to json: {where}: {action:.100}")
    return kind, _checked(kind, update, where)


def _checked_view_update(update: Any) -> tuple[UpdateKind[ViewBuilder], Document]:
    if not isinstance(update, dict):
        raise InvalidMetadata(f"Cannot parse metadata update from non-object value: {abbreviated(update)}")
    if update.get("action") is None:
        raise InvalidMetadata("Cannot parse metadata update. Missing field: action")
    action = get_string(update, "action", "update").lower()
    kind = VIEW_UPDATES.get(action)
    if kind is None:
        raise InvalidMetadata(
            f"Cannot apply update {action:.100} to a view; known are {', '.join(VIEW_UPDATES)}"
        )
    return kind, _checked(kind, update, action)


def _checked(kind: UpdateKind[BuilderT], update: Document, where: str) -> Document:
    check_depth(update, where)
    kind.check(update, where)
    checked: Document = without_nulls(update)
    return checked
