"""Metadata documents of views: creates new ones, applies updates, and validates registered ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.json_fields import (
    abbreviated,
    check_depth,
    get_field,
    get_int,
    get_long,
    get_object,
    get_objects,
    get_string,
    get_string_list,
    get_string_map,
    without_nulls,
)
from tidemill.iceberg.metadata.schemas import get_columns, stored_schema
from tidemill.iceberg.metadata.view_builder import ViewBuilder, history_size
from tidemill.iceberg.metadata.view_versions import check_version, writable_version
from tidemill.iceberg.model.entries import Document, NewView

FORMAT_VERSION: Final = 1
FIRST_VERSION: Final = 1
FIRST_SCHEMA: Final = 0

ViewUpdate: TypeAlias = Callable[[ViewBuilder], None]


def new_view(new: NewView, location: str, view_uuid: UUID, now_ms: int) -> Document:
    """A view with one version; assigns ids and times, whatever the client sent."""
    version = writable_version(get_object(new.version, "view-version"), "view-version")
    if not version["representations"]:
        raise InvalidMetadata("Cannot create view without specifying a query")
    schema = _checked_schema(new.schema, "schema")
    properties = dict(get_string_map({"properties": new.properties}, "properties", "view"))
    history_size(properties)
    assigned_ids = {"version-id": FIRST_VERSION, "timestamp-ms": now_ms, "schema-id": FIRST_SCHEMA}
    return {
        "view-uuid": str(view_uuid),
        "format-version": FORMAT_VERSION,
        "location": location,
        **({"properties": properties} if properties else {}),
        "schemas": [stored_schema(schema, FIRST_SCHEMA)],
        "current-version-id": FIRST_VERSION,
        "versions": [{**version, **assigned_ids}],
        "version-log": [{"timestamp-ms": now_ms, "version-id": FIRST_VERSION}],
    }


def changed_view(base: Document, updates: Sequence[Document], now_ms: int) -> Document:
    """The view after the updates, or `base` itself if they change nothing."""
    parsed = [_parsed_update(update) for update in updates]
    builder = ViewBuilder(base, now_ms)
    for apply in parsed:
        apply(builder)
    return builder.build()


def check_updates(updates: Sequence[Document]) -> None:
    """Raises InvalidMetadata if an update is unknown or malformed, regardless of the view."""
    for update in updates:
        _parsed_update(update)


def check_view(metadata: Document) -> None:
    """Raises InvalidMetadata if clients could not load the document as a view."""
    document = get_object(metadata, "view metadata")
    _check_uuid(get_string(document, "view-uuid", "view"))
    if (version := get_int(document, "format-version", "view")) != FORMAT_VERSION:
        raise InvalidMetadata(f"Unsupported format version: {version}")
    _check_location(get_string(document, "location", "view"))
    if "properties" in document:
        history_size(get_string_map(document, "properties", "view"))
    schemas = _by_id(document, "schemas", "schema-id", _checked_schema)
    versions = _by_id(document, "versions", "version-id", check_version)
    _check_current(get_int(document, "current-version-id", "view"), versions, schemas)
    for index, entry in enumerate(get_objects(document, "version-log", "view")):
        get_int(entry, "version-id", f"version-log[{index}]")
        get_long(entry, "timestamp-ms", f"version-log[{index}]")


def _check_uuid(given: str) -> None:
    try:
        UUID(given)
    except ValueError as error:
        raise InvalidMetadata(f"view-uuid: {abbreviated(given)} is not a UUID") from error


def _check_location(given: str) -> None:
    if not given:
        raise InvalidMetadata("Invalid location: it is empty")


def _checked_schema(schema: Any, where: str) -> Document:
    checked = get_object(schema, where)
    check_depth(checked, where)
    get_columns(checked, where)
    pruned: Document = without_nulls(checked)
    return pruned


def _by_id(
    document: Document, key: str, id_key: str, check: Callable[[Document, str], object]
) -> Mapping[int, Document]:
    found: dict[int, Document] = {}
    for index, item in enumerate(get_objects(document, key, "view")):
        check(item, f"{key}[{index}]")
        if found.setdefault(get_int(item, id_key, f"{key}[{index}]"), item) is not item:
            raise InvalidMetadata(f"{key}: more than one has the {id_key} {item[id_key]}")
    return found


def _check_current(current: int, versions: Mapping[int, Document], schemas: Collection[int]) -> None:
    if current not in versions:
        raise InvalidMetadata(f"Cannot find current version {current} in view versions: {sorted(versions)}")
    schema_id = versions[current]["schema-id"]
    if schema_id not in schemas:
        raise InvalidMetadata(f"Cannot find current schema with id {schema_id} in schemas: {sorted(schemas)}")


def _parsed_update(update: Document) -> ViewUpdate:
    """Validates an update and returns the function that applies it."""
    if not isinstance(update, dict):
        raise InvalidMetadata(f"Cannot parse metadata update from non-object value: {abbreviated(update)}")
    if update.get("action") is None:
        raise InvalidMetadata("Cannot parse metadata update. Missing field: action")
    action = get_string(update, "action", "update").lower()
    if action not in UPDATE_READERS:
        raise InvalidMetadata(
            f"Cannot apply update {action:.100} to a view; known are {', '.join(UPDATE_READERS)}"
        )
    return UPDATE_READERS[action](update)


def _assign_uuid(update: Document) -> ViewUpdate:
    uuid = get_string(update, "uuid", "assign-uuid")
    return lambda builder: builder.assign_uuid(uuid)


def _upgrade_format(update: Document) -> ViewUpdate:
    version = get_int(update, "format-version", "upgrade-format-version")
    return lambda builder: builder.upgrade_format(version)


def _add_schema(update: Document) -> ViewUpdate:
    schema = _checked_schema(get_field(update, "schema", "add-schema"), "add-schema.schema")
    return lambda builder: builder.add_schema(schema)


def _set_location(update: Document) -> ViewUpdate:
    location = get_string(update, "location", "set-location")
    _check_location(location)
    return lambda builder: builder.set_location(location)


def _set_properties(update: Document) -> ViewUpdate:
    updates = get_string_map(update, _sent_key(update, "updates", "updated"), "set-properties")
    return lambda builder: builder.set_properties(updates)


def _remove_properties(update: Document) -> ViewUpdate:
    removals = get_string_list(update, _sent_key(update, "removals", "removed"), "remove-properties")
    return lambda builder: builder.remove_properties(removals)


def _add_version(update: Document) -> ViewUpdate:
    where = "add-view-version.view-version"
    version = writable_version(
        get_object(get_field(update, "view-version", "add-view-version"), where), where
    )
    return lambda builder: builder.add_version(version)


def _set_current_version(update: Document) -> ViewUpdate:
    version_id = get_int(update, "view-version-id", "set-current-view-version")
    return lambda builder: builder.set_current_version(version_id)


def _sent_key(update: Document, key: str, legacy: str) -> str:
    """The key that the client sent: clients from before 2023 use other keys than the specification."""
    return legacy if legacy in update and key not in update else key


UPDATE_READERS: Final[Mapping[str, Callable[[Document], ViewUpdate]]] = {
    "assign-uuid": _assign_uuid,
    "upgrade-format-version": _upgrade_format,
    "add-schema": _add_schema,
    "set-location": _set_location,
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "add-view-version": _add_version,
    "set-current-view-version": _set_current_version,
}
