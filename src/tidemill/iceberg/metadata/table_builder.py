"""A table's document while updates are applied to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from tidemill.iceberg.metadata.ids import find_by_id
from tidemill.iceberg.metadata.schemas import Column, get_columns
from tidemill.iceberg.model.entries import Document

FIRST_PARTITION_ID: Final = 1000
MAIN: Final = "main"
UNSORTED: Final[Mapping[str, Any]] = {"order-id": 0, "fields": []}


@dataclass
class TableBuilder:
    """Holds a document of its own; the values in it may be the base's and are replaced, never written to."""

    document: Document
    now_ms: int
    is_new: bool
    has_changed: bool = False
    has_new_shape: bool = False
    last_schema_id: int | None = None
    last_spec_id: int | None = None
    last_order_id: int | None = None
    added_snapshots: set[int] = field(default_factory=set)
    shown_snapshots: set[int] = field(default_factory=set)
    has_removed_snapshots: bool = False

    def put(self, key: str, value: Any) -> None:
        self.document[key] = value
        self.has_changed = True

    @property
    def version(self) -> int:
        version: int = self.document["format-version"]
        return version

    @cached_property
    def snapshots(self) -> dict[int, Document]:
        """Changed in place and written back at the end: clients remove a thousand with a thousand updates."""
        return {snapshot["snapshot-id"]: snapshot for snapshot in self.document["snapshots"]}

    @cached_property
    def statistics(self) -> dict[int, list[Document]]:
        return _by_snapshot(self.document["statistics"])

    @cached_property
    def partition_statistics(self) -> dict[int, list[Document]]:
        return _by_snapshot(self.document["partition-statistics"])

    @property
    def current_columns(self) -> dict[int, Column] | None:
        """Those of the current schema; None while there is none."""
        schema = find_by_id(self.document["schemas"], "schema-id", self.document["current-schema-id"])
        return None if schema is None else get_columns(schema, "schemas")

    def set_current_snapshot(self, snapshot_id: int | None) -> None:
        none = _no_snapshot(self.version)
        self.put("current-snapshot-id", none if snapshot_id is None else snapshot_id)

    def write_back(self) -> None:
        """Puts into the document what was changed outside of it."""
        indexed = vars(self)
        if "snapshots" in indexed:
            self.document["snapshots"] = list(self.snapshots.values())
        if "statistics" in indexed:
            self.document["statistics"] = [file for files in self.statistics.values() for file in files]
        if "partition_statistics" in indexed:
            files = self.partition_statistics.values()
            self.document["partition-statistics"] = [file for per_snapshot in files for file in per_snapshot]


def empty_document(version: int, now_ms: int) -> Document:
    """A table before its first update, with its fields in the order in which Iceberg's library has them."""
    counted = {"last-sequence-number": 0} if version > 1 else {}
    lineage = {"next-row-id": 0} if version > 2 else {}
    return {
        "format-version": version,
        "table-uuid": None,
        "location": None,
        **counted,
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
        **lineage,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def opened(base: Document) -> Document:
    """A copy with the fields that old writers left out, as the specification says they are to be read."""
    document = {**base, **_missing_in_v1(base)} if base["format-version"] == 1 else dict(base)
    none = _no_snapshot(base["format-version"])
    defaults: dict[str, Any] = {"properties": {}, "refs": implied_refs(base), "current-snapshot-id": none}
    for key in ("snapshots", "statistics", "partition-statistics", "snapshot-log", "metadata-log"):
        defaults[key] = []
    for key, value in defaults.items():
        if document.get(key) is None:
            document[key] = value
    return document


def implied_refs(metadata: Document) -> dict[str, Document]:
    """Before there were references, the current snapshot was the main branch."""
    refs: dict[str, Document] | None = metadata.get("refs")
    if refs is not None:
        return refs
    current = metadata.get("current-snapshot-id")
    return {} if current in (None, -1) else {MAIN: {"snapshot-id": current, "type": "branch"}}


def numbered(fields: Iterable[Document]) -> list[Document]:
    """Partition fields with the ids that they have when none are written."""
    return [
        {**field, "field-id": field.get("field-id", FIRST_PARTITION_ID + at)}
        for at, field in enumerate(fields)
    ]


def _no_snapshot(version: int) -> int | None:
    """What says that no snapshot is the current one."""
    return None if version > 2 else -1


def _missing_in_v1(base: Document) -> Document:
    """The first writers had one schema and one spec, without lists and ids of them."""
    found: Document = {}
    if base.get("schemas") is None:
        schema = base["schema"]
        schema_id = schema.get("schema-id") or 0
        found["schemas"] = [{"type": "struct", **schema, "schema-id": schema_id}]
        found["current-schema-id"] = schema_id
    if base.get("partition-specs") is None:
        found["partition-specs"] = [{"spec-id": 0, "fields": numbered(base["partition-spec"])}]
        found["default-spec-id"] = 0
    if base.get("last-partition-id") is None:
        specs = found.get("partition-specs") or base["partition-specs"]
        ids = [field["field-id"] for spec in specs for field in numbered(spec["fields"])]
        found["last-partition-id"] = max(ids, default=FIRST_PARTITION_ID - 1)
    if base.get("sort-orders") is None:
        found["sort-orders"] = [dict(UNSORTED)]
        found["default-sort-order-id"] = UNSORTED["order-id"]
    return found


def _by_snapshot(files: Iterable[Document]) -> dict[int, list[Document]]:
    index: dict[int, list[Document]] = {}
    for file in files:
        index.setdefault(file["snapshot-id"], []).append(file)
    return index
