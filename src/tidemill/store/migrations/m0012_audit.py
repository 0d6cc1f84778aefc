"""Audit events."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tidemill.store.migrations.m0001_initial import TYPES

STATEMENTS: Final = (
    # Ids sort by time, so the primary key serves listings, time ranges and retention.
    """
    CREATE TABLE audit_events (
        event_id {id} PRIMARY KEY,
        principal TEXT NOT NULL,
        is_claimed BOOLEAN NOT NULL,
        address TEXT NOT NULL,
        request_id TEXT NOT NULL,
        protocol TEXT NOT NULL,
        operation TEXT NOT NULL,
        objects TEXT NOT NULL,
        objects_omitted BIGINT NOT NULL,
        decision TEXT NOT NULL,
        status BIGINT,
        error_code TEXT,
        job_id TEXT,
        is_committed BOOLEAN NOT NULL,
        count BIGINT NOT NULL
    )
    """,
    "CREATE INDEX audit_events_by_principal ON audit_events (principal, event_id)",
)


def upgrade(connection: Connection) -> None:
    types = TYPES[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format_map(types))
