"""Views, and the updates that clients send for them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tidemill.iceberg.metadata.views import new_view
from tidemill.iceberg.model.entries import Document, NewView

VIEW_UUID = UUID("fa6506c3-7681-40c8-86dc-e36561f83385")
NOW = 1_700_000_000_000


def schema(*names: str, **more: Any) -> Document:
    fields = [{"id": n, "name": name, "required": False, "type": "int"} for n, name in enumerate(names, 1)]
    return {"type": "struct", "schema-id": 7, "fields": fields, **more}


def version(sql: str = "SELECT 1", *dialects: str, **more: Any) -> Document:
    return {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 5,
        "summary": {"engine-name": "spark"},
        "default-namespace": ["sales"],
        "representations": [
            {"type": "sql", "sql": sql, "dialect": dialect} for dialect in dialects or ("spark",)
        ],
        **{key.replace("_", "-"): value for key, value in more.items()},
    }


def view(*dialects: str, **properties: str) -> Document:
    named = {key.replace("__", "-").replace("_", "."): value for key, value in properties.items()}
    new = NewView(schema("a"), version("SELECT 1", *dialects), properties=named)
    return new_view(new, "s3://lake/v", VIEW_UUID, NOW)


def adding(given: Document) -> Document:
    return {"action": "add-view-version", "view-version": given}


def setting(version_id: int) -> Document:
    return {"action": "set-current-view-version", "view-version-id": version_id}


def replacing(sql: str, *dialects: str, **more: Any) -> list[Document]:
    """What clients send for CREATE OR REPLACE VIEW."""
    return [
        {"action": "add-schema", "schema": schema("a"), "last-column-id": 1},
        adding(version(sql, *dialects, **{"schema_id": -1, **more})),
        setting(-1),
    ]


def log_of(document: Document) -> list[tuple[int, int]]:
    return [(entry["version-id"], entry["timestamp-ms"]) for entry in document["version-log"]]


def ids_of(document: Document) -> list[int]:
    return [each["version-id"] for each in document["versions"]]
