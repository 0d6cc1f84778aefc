"""The metadata document of a table or view while the updates of one commit are applied to it.

`changed_table` and `changed_view` open a builder on the current document, apply every update in turn, and
then finish the document: they write the logs and check what has become current. The base document must stay
intact, because the commit compares it with the result; so updates replace values and never modify them in
place. The builder also remembers what later updates refer to (-1 means "the last added schema") and what the
final steps need, such as the snapshots that were current only within this commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.json_fields import find_by_id
from tidemill.iceberg.model.entries import Document

FIRST_PARTITION_ID: Final = 1000
MAIN: Final = "main"
UNSORTED: Final[Mapping[str, Any]] = {"order-id": 0, "fields": []}


LAST_ADDED: Final = -1


@dataclass(kw_only=True)
class DocumentBuilder:
    """Owns `document`, but the values in it may be shared with the base: replace them, never modify them."""

    document: Document
    now_ms: int
    has_changed: bool = False
    last_schema_id: int | None = None

    def put(self, key: str, value: Any) -> None:
        self.document[key] = value
        self.has_changed = True


@dataclass(kw_only=True)
class ViewBuilder(DocumentBuilder):
    """`log_entry` says which version became current; one commit makes at most one entry."""

    last_version_id: int | None = None
    added_versions: set[int] = field(default_factory=set)
    log_entry: Document | None = None

    @cached_property
    def versions(self) -> dict[int, Document]:
        """Changed in place and written back once."""
        return {version["version-id"]: version for version in self.document["versions"]}


@dataclass(kw_only=True)
class TableBuilder(DocumentBuilder):
    """`has_new_current_ids`: the current schema, spec or order changed, and they are checked together.

    `current_snapshots` are those that main pointed to at some time during this commit.
    """

    is_new: bool
    has_new_current_ids: bool = False
    last_spec_id: int | None = None
    last_order_id: int | None = None
    added_snapshots: set[int] = field(default_factory=set)
    current_snapshots: set[int] = field(default_factory=set)
    has_removed_snapshots: bool = False

    @property
    def version(self) -> int:
        version: int = self.document["format-version"]
        return version

    @cached_property
    def snapshots(self) -> dict[int, Document]:
        """Changed in place and written back once: clients send a thousand removals at a time."""
        return {snapshot["snapshot-id"]: snapshot for snapshot in self.document["snapshots"]}

    @cached_property
    def statistics(self) -> dict[int, list[Document]]:
        return _by_snapshot(self.document["statistics"])

    @cached_property
    def partition_statistics(self) -> dict[int, list[Document]]:
        return _by_snapshot(self.document["partition-statistics"])

    def set_current_snapshot(self, snapshot_id: int | None) -> None:
        no_snapshot = _no_snapshot(self.version)
        self.put("current-snapshot-id", no_snapshot if snapshot_id is None else snapshot_id)

    def write_back(self) -> None:
        """Writes the changed indexes back into the document."""
        indexed = vars(self)
        if "snapshots" in indexed:
            self.document["snapshots"] = list(self.snapshots.values())
        if "statistics" in indexed:
            self.document["statistics"] = [file for files in self.statistics.values() for file in files]
        if "partition_statistics" in indexed:
            files = self.partition_statistics.values()
            self.document["partition-statistics"] = [file for per_snapshot in files for file in per_snapshot]


def empty_document(version: int, now_ms: int) -> Document:
    """A table before its first update; fields have the same order as in Iceberg's library."""
    sequence_fields = {"last-sequence-number": 0} if version > 1 else {}
    lineage_fields = {"next-row-id": 0} if version > 2 else {}
    return {
        "format-version": version,
        "table-uuid": None,
        "location": None,
        **sequence_fields,
        "last-updated-ms": now_ms,
        "last-column-id": 0,
        "current-schema-id": 0,
        "schemas": [],
        "default-spec-id": 0,
        "partition-specs": [],
        "last-partition-id": FIRST_PARTITION_ID - 1,
        "default-sort-order-id": 0,
        "sort-orders": [],
        "properties": {},
        "current-snapshot-id": _no_snapshot(version),
        **lineage_fields,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def with_defaults(base: Document) -> Document:
    """A copy with defaults for fields that old writers omit, as the specification defines them."""
    document = {**base, **_missing_in_v1(base)} if base["format-version"] == 1 else dict(base)
    no_snapshot = _no_snapshot(base["format-version"])
    defaults: dict[str, Any] = {
        "properties": {},
        "refs": implied_refs(base),
        "current-snapshot-id": no_snapshot,
    }
    for key in ("snapshots", "statistics", "partition-statistics", "snapshot-log", "metadata-log"):
        defaults[key] = []
    for key, value in defaults.items():
        if document.get(key) is None:
            document[key] = value
    return document


def implied_refs(metadata: Document) -> dict[str, Document]:
    """In documents without references, the current snapshot is the main branch."""
    refs: dict[str, Document] | None = metadata.get("refs")
    if refs is not None:
        return refs
    current = metadata.get("current-snapshot-id")
    return {} if current in (None, -1) else {MAIN: {"snapshot-id": current, "type": "branch"}}


def with_field_ids(fields: Iterable[Document]) -> list[Document]:
    """Partition fields with the implied ids where none are written."""
    return [
        {**field, "field-id": field.get("field-id", FIRST_PARTITION_ID + index)}
        for index, field in enumerate(fields)
    ]


def _no_snapshot(version: int) -> int | None:
    """The value of current-snapshot-id when there is no current snapshot."""
    return None if version > 2 else -1


def _missing_in_v1(base: Document) -> Document:
    """The first v1 writers had one schema and one spec, without lists and ids."""
    missing: Document = {}
    if base.get("schemas") is None:
        schema = base["schema"]
        schema_id = schema.get("schema-id") or 0
        missing["schemas"] = [{"type": "struct", **schema, "schema-id": schema_id}]
        missing["current-schema-id"] = schema_id
    if base.get("partition-specs") is None:
        missing["partition-specs"] = [{"spec-id": 0, "fields": with_field_ids(base["partition-spec"])}]
        missing["default-spec-id"] = 0
    if base.get("last-partition-id") is None:
        specs = missing.get("partition-specs") or base["partition-specs"]
        ids = [field["field-id"] for spec in specs for field in with_field_ids(spec["fields"])]
        missing["last-partition-id"] = max(ids, default=FIRST_PARTITION_ID - 1)
    if base.get("sort-orders") is None:
        missing["sort-orders"] = [dict(UNSORTED)]
        missing["default-sort-order-id"] = UNSORTED["order-id"]
    return missing


def _by_snapshot(files: Iterable[Document]) -> dict[int, list[Document]]:
    index: dict[int, list[Document]] = {}
    for file in files:
        index.setdefault(file["snapshot-id"], []).append(file)
    return index


@dataclass(frozen=True, slots=True)
class CurrentId:
    """Keys of the list, of the ids in it, and of the current id; `noun` and `role` are for messages."""

    noun: str
    role: str
    list_key: str
    id_key: str
    current_key: str


SCHEMA: Final = CurrentId("schema", "current", "schemas", "schema-id", "current-schema-id")
SPEC: Final = CurrentId("spec", "default", "partition-specs", "spec-id", "default-spec-id")
ORDER: Final = CurrentId("sort order", "default", "sort-orders", "order-id", "default-sort-order-id")


def set_current_id(builder: TableBuilder, current: CurrentId, wanted: int, last_added: int | None) -> None:
    if wanted == LAST_ADDED:
        if last_added is None:
            raise InvalidMetadata(f"Cannot set last added {current.noun}: no {current.noun} has been added")
        wanted = last_added
    if find_by_id(builder.document[current.list_key], current.id_key, wanted) is None:
        raise InvalidMetadata(f"Cannot set {current.role} {current.noun} to unknown {current.noun}: {wanted}")
    if wanted != builder.document[current.current_key]:
        builder.put(current.current_key, wanted)
        builder.has_new_current_ids = True
