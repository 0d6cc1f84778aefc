"""Labels of tables, views and their fields: what the catalog tells about them beside their metadata.

Clients get labels when they load something; no metadata file has them. These are derived:

- `owner`: the property `owner`, which Spark sets.
- `freshness`: the time of a table's current snapshot, in ISO 8601.
- `digest`: SHA-256 of the definition of a view, that is, its SQL in all dialects and the names it is resolved
  with. Two versions with the same definition have the same digest.

Users add more with properties: `label.<key>` labels the table or view, `field-label.<column>.<key>` one of
its columns, which may be nested (`address.city`). Responses identify a column by its field id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from tidemill.iceberg.model.entries import Document

OBJECT_PREFIX: Final = "label."
FIELD_PREFIX: Final = "field-label."
OWNER: Final = "owner"
DEFINITION: Final = ("representations", "default-catalog", "default-namespace")


def labels_of(document: Document) -> Document | None:
    """The `labels` of a load result, or None if there are none."""
    properties: Mapping[str, str] = document.get("properties") or {}
    own = {key.removeprefix(OBJECT_PREFIX): value for key, value in properties.items() if _is_object(key)}
    labels = {"object-labels": _derived(document, properties) | own, "fields": _fields(document, properties)}
    given = {key: value for key, value in labels.items() if value}
    return given or None


def _is_object(key: str) -> bool:
    return key.startswith(OBJECT_PREFIX) and key != OBJECT_PREFIX


def _derived(document: Document, properties: Mapping[str, str]) -> dict[str, str]:
    derived = {OWNER: properties[OWNER]} if properties.get(OWNER) else {}
    snapshot = _current(document, "snapshots", "snapshot-id", "current-snapshot-id")
    if snapshot is not None:
        derived["freshness"] = _iso_time(snapshot["timestamp-ms"])
    version = _current(document, "versions", "version-id", "current-version-id")
    if version is not None:
        derived["digest"] = _digest(version)
    return derived


def _current(document: Document, listed: str, id_field: str, current_field: str) -> Document | None:
    current = document.get(current_field)
    return next((one for one in document.get(listed) or () if one[id_field] == current), None)


def _iso_time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def _digest(version: Document) -> str:
    definition = {key: version.get(key) for key in DEFINITION}
    return hashlib.sha256(orjson.dumps(definition, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _fields(document: Document, properties: Mapping[str, str]) -> list[Document]:
    """Labels by field, in the order of field ids; those of columns that do not exist are left out."""
    given = {key: value for key, value in properties.items() if key.startswith(FIELD_PREFIX)}
    if not given:
        return []
    ids, labels = dict(_field_ids(_current_schema(document))), dict[int, dict[str, str]]()
    for key, value in given.items():
        column, _, name = key.removeprefix(FIELD_PREFIX).rpartition(".")
        if column in ids and name:
            labels.setdefault(ids[column], {})[name] = value
    return [{"field-id": field_id, "labels": labels[field_id]} for field_id in sorted(labels)]


def _current_schema(document: Document) -> Document:
    version = _current(document, "versions", "version-id", "current-version-id")
    schema_id = document.get("current-schema-id") if version is None else version["schema-id"]
    schemas: list[Document] = document.get("schemas") or []
    return next((schema for schema in schemas if schema.get("schema-id") == schema_id), {})


def _field_ids(type_: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Every field by its full name; elements of lists and maps are named as Iceberg names them."""
    if not isinstance(type_, dict):
        return
    inner = [(field["name"], field["id"], field["type"]) for field in type_.get("fields") or ()]
    inner += [
        (part, type_[f"{part}-id"], type_[part]) for part in ("element", "key", "value") if part in type_
    ]
    for name, field_id, below in inner:
        full_name = f"{path}{name}"
        yield full_name, field_id
        yield from _field_ids(below, f"{full_name}.")
