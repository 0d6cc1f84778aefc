"""What callers noted on transactions: properties beyond those the commit or the job carries."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tidemill.store.migrations.m0001_initial import TYPES

# Like jobs, the notes are history: they outlive the table that the transaction changed.
STATEMENTS: Final = (
    """
    CREATE TABLE transactions (
        transaction_id {name} PRIMARY KEY,
        properties TEXT NOT NULL,
        updated_at BIGINT NOT NULL
    )
    """,
)


def upgrade(connection: Connection) -> None:
    types = TYPES[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format_map(types))
