"""Properties that callers set on transactions, beyond those of the commit or the job."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tidemill.store.migrations.m0001_initial import TYPES

# No foreign key: like jobs, these properties are history and outlive the table.
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
