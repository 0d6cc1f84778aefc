"""Requests of the Iceberg protocol as tests send them: plain JSON, keys made by hand."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
}


def new_key() -> str:
    """A UUID of version 7: the time, then chance."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    return str(UUID(int=value & ~(0xF000 << 64) & ~(0xC000 << 48) | 0x7000 << 64 | 0x8000 << 48))


def version_of(sql: str, number: int = 1, dialect: str = "spark") -> dict[str, Any]:
    return {
        "version-id": number,
        "timestamp-ms": time.time_ns() // 1_000_000,
        "schema-id": 0,
        "summary": {"engine-name": "test"},
        "default-namespace": [],
        "representations": [{"type": "sql", "sql": sql, "dialect": dialect}],
    }


def new_view(name: str, sql: str = "SELECT 1", properties: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "schema": SCHEMA,
        "view-version": version_of(sql),
        "properties": dict(properties or {}),
    }


def new_table(name: str, properties: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {"name": name, "schema": SCHEMA, "properties": dict(properties or {})}


def with_properties(**properties: str) -> dict[str, Any]:
    """A commit that always changes something."""
    return {"requirements": [], "updates": [{"action": "set-properties", "updates": properties}]}


def with_version(sql: str, dialect: str = "spark") -> dict[str, Any]:
    """What replaces a view."""
    return {
        "requirements": [],
        "updates": [
            {"action": "add-schema", "schema": SCHEMA},
            {"action": "add-view-version", "view-version": {**version_of(sql, 1, dialect), "schema-id": -1}},
            {"action": "set-current-view-version", "view-version-id": -1},
        ],
    }


def number_of(metadata_location: str) -> int:
    """How many commits a table or view has had after its first state."""
    return int(metadata_location.rsplit("/", 1)[1].partition("-")[0])
