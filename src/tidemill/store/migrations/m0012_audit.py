"""Audit events."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tidemill.store.migrations.m0001_initial import TYPES

# Ids sort by time, so the primary key serves listings, time ranges and retention. Every further tree would
# make each commit slower, so there is no other index, and SQLite keeps the rows in that of the key.
STATEMENT: Final = """
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
    ) {storage}
"""
STORAGE: Final = {"sqlite": "WITHOUT ROWID", "postgresql": ""}


def upgrade(connection: Connection) -> None:
    dialect = connection.dialect.name
    connection.exec_driver_sql(STATEMENT.format(**TYPES[dialect], storage=STORAGE[dialect]))
