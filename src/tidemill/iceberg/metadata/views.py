"""Metadata documents of views: creates new ones, applies updates, and validates registered ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.builders import ViewBuilder
from tidemill.iceberg.metadata.json_fields import (
    abbreviated,
    check_depth,
    get_int,
    get_long,
    get_object,
    get_objects,
    get_string,
    get_string_map,
    without_nulls,
)
from tidemill.iceberg.metadata.schemas import get_columns, stored_schema
from tidemill.iceberg.metadata.update_kinds import checked_view_updates
from tidemill.iceberg.metadata.view_updates import (
    check_dialects,
    check_location,
    check_new_version,
    check_version,
    expire_versions,
    history_size,
    stored_version,
)
from tidemill.iceberg.model.entries import Document, NewView

FORMAT_VERSION: Final = 1
FIRST_VERSION: Final = 1
FIRST_SCHEMA: Final = 0


def new_view(new: NewView, location: str, view_uuid: UUID, now_ms: int) -> Document:
    """A view with one version; assigns ids and times, whatever the client sent."""
    check_new_version(get_object(new.version, "view-version"), "view-version")
    version = stored_version(new.version)
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
    checked = checked_view_updates(updates)
    builder = ViewBuilder(document={**base, "properties": base.get("properties") or {}}, now_ms=now_ms)
    for kind, update in checked:
        kind.apply(builder, update)
    if not builder.has_changed:
        return base
    check_dialects(builder, base)
    expire_versions(builder)
    return _without_empty_properties(builder.document)


def check_view(metadata: Document) -> None:
    """Raises InvalidMetadata if clients could not load the document as a view."""
    document = get_object(metadata, "view metadata")
    _check_uuid(get_string(document, "view-uuid", "view"))
    if (version := get_int(document, "format-version", "view")) != FORMAT_VERSION:
        raise InvalidMetadata(f"Unsupported format version: {version}")
    check_location(get_string(document, "location", "view"))
    if "properties" in document:
        history_size(get_string_map(document, "properties", "view"))
    schemas = _by_id(document, "schemas", "schema-id", _checked_schema)
    versions = _by_id(document, "versions", "version-id", check_version)
    _check_current(get_int(document, "current-version-id", "view"), versions, schemas)
    for index, entry in enumerate(get_objects(document, "version-log", "view")):
        get_int(entry, "version-id", f"version-log[{index}]")
        get_long(entry, "timestamp-ms", f"version-log[{index}]")


def _without_empty_properties(document: Document) -> Document:
    """Readers take a missing field for no properties."""
    properties = document.pop("properties")
    return {**document, "properties": properties} if properties else document


def _check_uuid(given: str) -> None:
    try:
        UUID(given)
    except ValueError as error:
        raise InvalidMetadata(f"view-uuid: {abbreviated(given)} is not a UUID") from error


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
