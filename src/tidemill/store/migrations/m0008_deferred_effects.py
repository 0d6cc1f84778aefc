"""Which manifest a version's row means, and what is recorded once that manifest is in place."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tidemill.store.migrations.m0001_initial import TYPES

STATEMENTS: Final = (
    "ALTER TABLE table_versions ADD COLUMN digest TEXT",
    "ALTER TABLE table_versions ADD COLUMN deferred {bytes}",
)


def upgrade(connection: Connection) -> None:
    types = TYPES[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format_map(types))
