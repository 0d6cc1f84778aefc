"""Versions of views, and the updates that only views have, or that work differently on them.

Adding a schema or version that already exists is not an error: clients repeat commits after a lost response.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from typing import Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.builders import LAST_ADDED, ViewBuilder
from tidemill.iceberg.metadata.json_fields import (
    as_int,
    check_depth,
    find_string,
    get_field,
    get_int,
    get_long,
    get_object,
    get_objects,
    get_string,
    get_string_list,
    get_string_map,
    next_id,
    without_nulls,
)
from tidemill.iceberg.metadata.schemas import same_schema, stored_schema
from tidemill.iceberg.model.entries import Document

HISTORY_SIZE: Final = "version.history.num-entries"
DEFAULT_HISTORY_SIZE: Final = 10
DROP_DIALECT_ALLOWED: Final = "replace.drop-dialect.allowed"
SQL: Final = "sql"
# Versions are compared by content, not by id and creation time.
NOT_COMPARED: Final = frozenset({"version-id", "timestamp-ms"})


def check_version(version: Document, where: str) -> None:
    """Checks that all fields exist and have the right types; accepts unknown kinds of representations."""
    check_depth(version, where)
    get_int(version, "version-id", where)
    get_int(version, "schema-id", where)
    get_long(version, "timestamp-ms", where)
    get_string_map(version, "summary", where)
    for index, representation in enumerate(get_objects(version, "representations", where)):
        path = f"{where}.representations[{index}]"
        if get_string(representation, "type", path).lower() == SQL:
            get_string(representation, "sql", path)
            get_string(representation, "dialect", path)
    find_string(version, "default-catalog", where)
    get_string_list(version, "default-namespace", where)


def check_new_version(version: Document, where: str) -> None:
    """Checks a version before it is added to a view: only SQL, and one query per dialect."""
    check_version(version, where)
    unknown = sorted({kind for found in version["representations"] if (kind := found["type"].lower()) != SQL})
    if unknown:
        raise InvalidMetadata(f"Found unsupported view representations: [{', '.join(unknown):.200}]")
    seen = set()
    for dialect in _dialects(version):
        if dialect in seen:
            raise InvalidMetadata(
                f"Invalid view version: Cannot add multiple queries for dialect {dialect:.200}"
            )
        seen.add(dialect)


def stored_version(version: Document) -> Document:
    """A checked version as it is stored."""
    pruned: Document = without_nulls(version)
    queries = [{**representation, "type": SQL} for representation in pruned["representations"]]
    return {**pruned, "representations": queries}


def history_size(properties: Mapping[str, str]) -> int:
    """How many versions to keep; readers check this too: an invalid value makes a view unreadable."""
    text = properties.get(HISTORY_SIZE, str(DEFAULT_HISTORY_SIZE))
    size = as_int(text)
    if size is None:
        raise InvalidMetadata(f"{HISTORY_SIZE} must be a number but was {text!r:.100}")
    if size <= 0:
        raise InvalidMetadata(f"{HISTORY_SIZE} must be positive but was {size}")
    return size


def check_assign_uuid(update: Document, where: str) -> None:
    get_string(update, "uuid", where)


def assign_uuid(builder: ViewBuilder, update: Document) -> None:
    if update["uuid"].lower() != builder.document["view-uuid"].lower():
        raise InvalidMetadata("Cannot reassign uuid")


def upgrade(builder: ViewBuilder, update: Document) -> None:
    version, current = update["format-version"], builder.document["format-version"]
    if version < current:
        raise InvalidMetadata(f"Cannot downgrade v{current} view to v{version}")
    if version > current:
        raise InvalidMetadata(f"Unsupported format version: {version}")


def check_location(location: str) -> None:
    if not location:
        raise InvalidMetadata("Invalid location: it is empty")


def check_set_location(update: Document, where: str) -> None:
    check_location(get_string(update, "location", where))


def set_location(builder: ViewBuilder, update: Document) -> None:
    if update["location"] != builder.document["location"]:
        builder.put("location", update["location"])


def add_schema(builder: ViewBuilder, update: Document) -> None:
    """Assigns the id; an identical existing schema counts as added, so a retry succeeds."""
    schemas = builder.document["schemas"]
    schema_id = next((known["schema-id"] for known in schemas if same_schema(known, update["schema"])), None)
    if schema_id is None:
        schema_id = next_id([known["schema-id"] for known in schemas], 0, "schema-id")
        builder.put("schemas", [*schemas, stored_schema(update["schema"], schema_id)])
    builder.last_schema_id = schema_id


def check_add_version(update: Document, where: str) -> None:
    path = f"{where}.view-version"
    check_new_version(get_object(get_field(update, "view-version", where), path), path)


def add_version(builder: ViewBuilder, update: Document) -> None:
    """Assigns the id; an identical existing version counts as added, so a retry succeeds."""
    version = stored_version(update["view-version"])
    resolved = {**version, "schema-id": _resolved_schema_id(builder, version["schema-id"])}
    version_id = next(
        (known_id for known_id, known in builder.versions.items() if _are_same(known, resolved)), None
    )
    if version_id is None:
        version_id = next_id(list(builder.versions), version["version-id"], "version-id")
        builder.versions[version_id] = {**resolved, "version-id": version_id}
        builder.added_versions.add(version_id)
        builder.has_changed = True
    builder.last_version_id = version_id


def check_set_current_version(update: Document, where: str) -> None:
    get_int(update, "view-version-id", where)


def set_current_version(builder: ViewBuilder, update: Document) -> None:
    version_id = update["view-version-id"]
    if version_id == LAST_ADDED:
        if builder.last_version_id is None:
            raise InvalidMetadata("Cannot set last version id: no current version id has been set")
        version_id = builder.last_version_id
    if version_id == builder.document["current-version-id"]:
        return
    if version_id not in builder.versions:
        raise InvalidMetadata(f"Cannot set current version to unknown version: {version_id}")
    # An old version becomes current now, not at its creation time.
    is_new = version_id in builder.added_versions
    moment = builder.versions[version_id]["timestamp-ms"] if is_new else builder.now_ms
    builder.log_entry = {"timestamp-ms": moment, "version-id": version_id}
    builder.put("current-version-id", version_id)


def check_dialects(builder: ViewBuilder, base: Document) -> None:
    """Raises InvalidMetadata if the new current version lacks a dialect that the old one has."""
    if builder.document["properties"].get(DROP_DIALECT_ALLOWED, "").lower() == "true":
        return
    before = frozenset(_dialects(builder.versions[base["current-version-id"]]))
    after = frozenset(_dialects(builder.versions[builder.document["current-version-id"]]))
    if not before <= after:
        raise InvalidMetadata(
            f"Cannot replace view due to loss of view dialects ({DROP_DIALECT_ALLOWED}=false):\n"
            f"Previous dialects: [{', '.join(sorted(before))}]\n"
            f"New dialects: [{', '.join(sorted(after))}]"
        )


def expire_versions(builder: ViewBuilder) -> None:
    """Keeps the latest versions and their log; always the current one and all that this commit added."""
    document = builder.document
    needed = builder.added_versions | {document["current-version-id"]}
    others = sorted(builder.versions.keys() - needed, reverse=True)
    spare = history_size(document["properties"]) - len(needed)
    retained = needed | set(others[: max(spare, 0)])
    document["versions"] = [version for key, version in builder.versions.items() if key in retained]
    document["version-log"] = _log(builder, retained)


def _log(builder: ViewBuilder, retained: Set[int]) -> list[Document]:
    log: list[Document] = list(builder.document["version-log"])
    if builder.log_entry is not None:
        log.append(builder.log_entry)
    if len(retained) == len(builder.versions):
        return log
    # The log up to an expired version is dropped: with gaps it would be wrong.
    gone = (index for index, entry in enumerate(log) if entry["version-id"] not in retained)
    return log[max(gone, default=-1) + 1 :]


def _resolved_schema_id(builder: ViewBuilder, schema_id: int) -> int:
    if schema_id == LAST_ADDED:
        if builder.last_schema_id is None:
            raise InvalidMetadata("Cannot set last added schema: no schema has been added")
        return builder.last_schema_id
    if all(known["schema-id"] != schema_id for known in builder.document["schemas"]):
        raise InvalidMetadata(f"Cannot add version with unknown schema: {schema_id}")
    return schema_id


def _are_same(left: Document, right: Document) -> bool:
    """Compares all fields, known or not, except id and time; null equals absent."""
    return _comparable(left) == _comparable(right)


def _comparable(version: Document) -> str:
    # As text, because 1, 1.0 and True are equal in Python.
    compared = {key: value for key, value in version.items() if key not in NOT_COMPARED and value is not None}
    return json.dumps(compared, sort_keys=True)


def _dialects(version: Document) -> Iterator[str]:
    for representation in version["representations"]:
        if representation["type"].lower() == SQL:
            yield representation["dialect"].lower()
