"""Clusters and job lists, the version that holds a column's values, row errors, and named environments."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tidemill.store.migrations.m0001_initial import TYPES

STATEMENTS: Final = (
    "ALTER TABLE jobs ADD COLUMN cluster {name} NOT NULL DEFAULT 'default'",
    "DROP INDEX jobs_waiting",
    "CREATE INDEX jobs_waiting ON jobs (cluster, created_at, job_id) WHERE state IN ('QUEUED', 'RUNNING')",
    # Each list is read newest job first.
    "CREATE INDEX jobs_of_table ON jobs (table_id, job_id)",
    "CREATE INDEX jobs_of_subject ON jobs (subject_id, job_id)",
    "CREATE INDEX jobs_of_kind ON jobs (kind, job_id)",
    "CREATE INDEX jobs_in_state ON jobs (state, job_id)",
    "ALTER TABLE computed_columns ADD COLUMN has_auto_backfill BOOLEAN NOT NULL DEFAULT FALSE",
    "ALTER TABLE coverage ADD COLUMN published BIGINT NOT NULL DEFAULT 0",
    # The version with the results was not recorded; it is no earlier than the one they were computed from.
    "UPDATE coverage SET published = watermark",
    "ALTER TABLE coverage ADD COLUMN outdated_row_ids {bytes}",
    """
    CREATE TABLE row_errors (
        subject_id {id} NOT NULL,
        row_id BIGINT NOT NULL,
        digest {name} NOT NULL,
        job_id {name} NOT NULL,
        exception TEXT NOT NULL,
        message TEXT NOT NULL,
        traceback TEXT NOT NULL,
        attempts BIGINT NOT NULL,
        is_skipped BOOLEAN NOT NULL,
        at BIGINT NOT NULL,
        PRIMARY KEY (subject_id, row_id)
    )
    """,
    """
    CREATE TABLE environments (
        name {name} PRIMARY KEY,
        packages TEXT NOT NULL,
        variables TEXT NOT NULL
    )
    """,
)


def upgrade(connection: Connection) -> None:
    types = TYPES[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format_map(types))
