"""Coverage by data files and fingerprints, and computed columns bound to fields of their table."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tidemill.store.migrations.m0001_initial import TYPES

STATEMENTS: Final = (
    "ALTER TABLE coverage ADD COLUMN files {bytes}",
    "ALTER TABLE coverage ADD COLUMN segments TEXT NOT NULL DEFAULT '[]'",
    "ALTER TABLE computed_columns ADD COLUMN field_ids TEXT NOT NULL DEFAULT '{{}}'",
    "ALTER TABLE computed_columns ADD COLUMN bound_version BIGINT NOT NULL DEFAULT 0",
)


def upgrade(connection: Connection) -> None:
    types = TYPES[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format_map(types))
