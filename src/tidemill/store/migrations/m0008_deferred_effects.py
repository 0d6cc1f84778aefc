"""Manifest digests, writes deferred until the manifest is in place, and versions marked as deleted."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tidemill.store.migrations.m0001_initial import TYPES

STATEMENTS: Final = (
    "ALTER TABLE table_versions ADD COLUMN digest TEXT",
    "ALTER TABLE table_versions ADD COLUMN deferred {bytes}",
    "ALTER TABLE table_versions ADD COLUMN is_deleted BOOLEAN NOT NULL DEFAULT FALSE",
)


def upgrade(connection: Connection) -> None:
    types = TYPES[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format_map(types))
