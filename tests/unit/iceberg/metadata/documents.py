"""Tables to change in tests, and the updates that change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from hypothesis import strategies as st

from tidemill.iceberg.metadata.tables import changed_table, new_table
from tidemill.iceberg.model.entries import Document, NewTable

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
TABLE_UUID = UUID("0195e1a6-6a2b-7cc1-8f7e-2c7d3a1b4c5d")
CREATED_MS = 1_700_000_000_000
LATER_MS = CREATED_MS + 1_000
BASE_FILE = "file:///lake/t/metadata/00000.metadata.json"


def column(field_id: int, name: str, kind: Any, *, required: bool = False) -> Document:
    return {"id": field_id, "name": name, "required": required, "type": kind}


def schema(*columns: Document, **more: Any) -> Document:
    return {"type": "struct", "fields": list(columns), **more}


SCHEMA = schema(
    column(1, "id", "long", required=True), column(2, "at", "timestamp"), column(3, "name", "string")
)


def spec(*fields: tuple[str, int, str], first_id: int | None = 1000) -> Document:
    described: list[Document] = [
        {"name": name, "source-id": source, "transform": transform} for name, source, transform in fields
    ]
    if first_id is not None:
        described = [{**field, "field-id": first_id + at} for at, field in enumerate(described)]
    return {"spec-id": 0, "fields": described}


def order(*fields: tuple[int, str]) -> Document:
    return {
        "order-id": 1 if fields else 0,
        "fields": [
            {"source-id": source, "transform": transform, "direction": "asc", "null-order": "nulls-first"}
            for source, transform in fields
        ],
    }


def table(version: int = 2, properties: Mapping[str, str] = NOTHING) -> Document:
    new = NewTable(SCHEMA, properties={"format-version": str(version), **properties})
    return new_table(new, "file:///lake/t", TABLE_UUID, CREATED_MS)


def change(base: Document | None, *updates: Any, now_ms: int = LATER_MS) -> Document:
    return changed_table(
        base,
        updates,
        default_location="file:///lake/default",
        now_ms=now_ms,
        base_location=None if base is None else BASE_FILE,
    )


def snapshot(snapshot_id: int, sequence: int, **more: Any) -> Document:
    return {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence,
        "timestamp-ms": CREATED_MS + snapshot_id,
        "manifest-list": f"file:///lake/t/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append"},
        **more,
    }


def add(snapshot_id: int, sequence: int, **more: Any) -> Document:
    return {"action": "add-snapshot", "snapshot": snapshot(snapshot_id, sequence, **more)}


def point(name: str, snapshot_id: int, kind: str = "branch", more: Mapping[str, Any] = NOTHING) -> Document:
    return {"action": "set-snapshot-ref", "ref-name": name, "snapshot-id": snapshot_id, "type": kind, **more}


def written(count: int) -> Document:
    """A table of v2 with this many commits to main, each with the one before it as its parent."""
    base = table()
    for number in range(1, count + 1):
        parent = {} if number == 1 else {"parent-snapshot-id": number - 1}
        base = change(base, add(number, number, **parent), point("main", number))
    return base


def oldest() -> Document:
    """A table as the first writers left it: one schema and one spec, without ids, lists and a uuid."""
    made = table(1)
    old = {key: made[key] for key in ("format-version", "location", "last-updated-ms", "last-column-id")}
    old["schema"] = {key: value for key, value in made["schema"].items() if key != "schema-id"}
    return {**old, "partition-spec": spec(("name", 3, "identity"), first_id=None)["fields"]}


def log_of(metadata: Document) -> Sequence[int]:
    return [entry["snapshot-id"] for entry in metadata["snapshot-log"]]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 4)
    | st.just(2**70)
    | st.just(0.5)
    | st.sampled_from(["", "main", "branch", "tag", "int", "struct", "list", "day", "bucket[4]", "x"])
)
KEYS = st.sampled_from(
    [
        "snapshot-id", "snapshot-ids", "snapshot", "ref-name", "type", "fields", "schema", "schema-id", "id",
        "name", "required", "spec", "spec-id", "source-id", "transform", "sort-order", "sort-order-id",
        "direction", "null-order", "updates", "removals", "statistics", "uuid", "format-version", "location",
        "encryption-key", "key-id", "timestamp-ms", "summary", "manifest-list", "element", "element-id",
    ]
)  # fmt: skip
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)


def mutations(document: Any) -> st.SearchStrategy[Any]:
    """The document with something else in one place of it."""
    if isinstance(document, dict) and document:
        return st.sampled_from(sorted(document)).flatmap(
            lambda key: (
                mutations(document[key]).map(lambda value: {**document, key: value})
                | st.just({other: value for other, value in document.items() if other != key})
            )
        )
    if isinstance(document, list) and document:
        at = st.integers(0, len(document) - 1)
        return at.flatmap(
            lambda at: mutations(document[at]).map(lambda value: [*document[:at], value, *document[at + 1 :]])
        )
    return JSON
