"""Versions of functions, columns unpacked from structs, function columns in views, and pausing of jobs."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tidemill.store.migrations.m0001_initial import TYPES

STATEMENTS: Final = (
    "ALTER TABLE functions ADD COLUMN version BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE functions ADD COLUMN dropped_at BIGINT",
    """
    UPDATE functions SET version = (
        SELECT count(*) FROM functions AS earlier
        WHERE earlier.name = functions.name
            AND (earlier.registered_at, earlier.digest) <= (functions.registered_at, functions.digest)
    )
    """,
    "CREATE UNIQUE INDEX functions_version ON functions (name, version)",
    "ALTER TABLE computed_columns ADD COLUMN siblings TEXT NOT NULL DEFAULT '[]'",
    "ALTER TABLE materialized_views ADD COLUMN output {bytes}",
    "ALTER TABLE materialized_views ADD COLUMN columns TEXT NOT NULL DEFAULT '[]'",
    "ALTER TABLE materialized_views ADD COLUMN partition_by TEXT",
    "ALTER TABLE jobs ADD COLUMN attempt BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE jobs ADD COLUMN pause_requested_at BIGINT",
    "UPDATE jobs SET attempt = epoch",
    "DROP INDEX jobs_active_subject",
    """
    CREATE UNIQUE INDEX jobs_active_subject ON jobs (subject_id)
        WHERE state IN ('QUEUED', 'RUNNING', 'PAUSED')
    """,
)


def upgrade(connection: Connection) -> None:
    types = TYPES[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format_map(types))
