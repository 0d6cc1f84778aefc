"""Secrets and stored queries."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tidemill.store.migrations.m0001_initial import TYPES

STATEMENTS: Final = (
    """
    CREATE TABLE secrets (
        namespace_id {id} NOT NULL REFERENCES namespaces (namespace_id),
        name {name} NOT NULL,
        sealed_value {bytes} NOT NULL,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        PRIMARY KEY (namespace_id, name)
    )
    """,
    """
    CREATE TABLE stored_queries (
        table_id {id} PRIMARY KEY REFERENCES tables (table_id) ON DELETE CASCADE,
        statement TEXT NOT NULL,
        query TEXT NOT NULL,
        output {bytes} NOT NULL
    )
    """,
)


def upgrade(connection: Connection) -> None:
    types = TYPES[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format_map(types))
