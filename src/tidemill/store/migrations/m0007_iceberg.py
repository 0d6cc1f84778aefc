"""Iceberg tables and views, receipts of requests, and the queue of tables whose files are to be removed."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tidemill.store.migrations.m0001_initial import TYPES

STATEMENTS: Final = (
    """
    CREATE TABLE iceberg_entries (
        table_id {id} PRIMARY KEY REFERENCES tables (table_id) ON DELETE CASCADE,
        metadata_location TEXT NOT NULL,
        metadata {bytes} NOT NULL
    )
    """,
    # Every new Iceberg table is checked against the locations of all others.
    "CREATE INDEX tables_location ON tables (location)",
    """
    CREATE TABLE receipts (
        key {name} PRIMARY KEY,
        principal TEXT NOT NULL,
        operation TEXT NOT NULL,
        resource TEXT NOT NULL,
        body_digest TEXT NOT NULL,
        outcome {bytes} NOT NULL,
        expires_at BIGINT NOT NULL
    )
    """,
    "CREATE INDEX receipts_expiry ON receipts (expires_at)",
    # Not a foreign key: the table has left the catalog when its files are removed.
    """
    CREATE TABLE iceberg_purges (
        entry_id {id} PRIMARY KEY,
        levels TEXT NOT NULL,
        place TEXT NOT NULL,
        metadata_location TEXT NOT NULL,
        metadata {bytes} NOT NULL,
        requested_at BIGINT NOT NULL
    )
    """,
)


def upgrade(connection: Connection) -> None:
    types = TYPES[connection.dialect.name]
    if connection.dialect.name == "postgresql":
        # Byte order, as on SQLite, so that everything below a location is a range of the index.
        connection.exec_driver_sql("ALTER TABLE tables ALTER COLUMN location TYPE {name}".format_map(types))
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format_map(types))
