"""The first schema: catalog, functions, derived columns and views, jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection

# Byte order on both dialects: by default PostgreSQL sorts and pages names by the locale of its cluster.
TYPES: Final[Mapping[str, Mapping[str, str]]] = {
    "sqlite": {"id": "CHAR(32)", "name": "TEXT", "bytes": "BLOB"},
    "postgresql": {"id": "UUID", "name": 'TEXT COLLATE "C"', "bytes": "BYTEA"},
}

STATEMENTS: Final = (
    """
    CREATE TABLE namespaces (
        namespace_id {id} PRIMARY KEY,
        parent_id {id} REFERENCES namespaces (namespace_id),
        name {name} NOT NULL,
        properties TEXT NOT NULL,
        UNIQUE (parent_id, name)
    )
    """,
    "INSERT INTO namespaces VALUES ('00000000000000000000000000000000', NULL, '', '{{}}')",
    """
    CREATE TABLE tables (
        table_id {id} PRIMARY KEY,
        namespace_id {id} NOT NULL REFERENCES namespaces (namespace_id),
        name {name} NOT NULL,
        location TEXT NOT NULL,
        kind TEXT NOT NULL,
        properties TEXT NOT NULL,
        UNIQUE (namespace_id, name)
    )
    """,
    """
    CREATE TABLE table_versions (
        table_id {id} NOT NULL REFERENCES tables (table_id),
        branch {name} NOT NULL,
        version BIGINT NOT NULL,
        manifest_path TEXT NOT NULL,
        staged_path TEXT NOT NULL,
        manifest_size BIGINT NOT NULL,
        created_at BIGINT NOT NULL,
        e_tag TEXT,
        metadata TEXT NOT NULL,
        PRIMARY KEY (table_id, branch, version)
    )
    """,
    """
    CREATE TABLE functions (
        digest {name} PRIMARY KEY,
        name {name} NOT NULL,
        envelope {bytes} NOT NULL,
        registered_by TEXT NOT NULL,
        registered_at BIGINT NOT NULL
    )
    """,
    """
    CREATE TABLE computed_columns (
        column_id {id} PRIMARY KEY,
        table_id {id} NOT NULL REFERENCES tables (table_id),
        name {name} NOT NULL,
        function_digest TEXT NOT NULL,
        inputs TEXT NOT NULL,
        UNIQUE (table_id, name)
    )
    """,
    # Not a foreign key: a source may be dropped while the view keeps its rows.
    """
    CREATE TABLE materialized_views (
        view_id {id} PRIMARY KEY REFERENCES tables (table_id),
        source_id {id} NOT NULL,
        kind TEXT NOT NULL,
        query TEXT NOT NULL,
        raw_query TEXT NOT NULL,
        digest TEXT NOT NULL,
        function_digest TEXT,
        inputs TEXT NOT NULL,
        has_auto_refresh BOOLEAN NOT NULL
    )
    """,
    "CREATE INDEX materialized_views_source ON materialized_views (source_id)",
    """
    CREATE TABLE coverage (
        subject_id {id} NOT NULL,
        digest {name} NOT NULL,
        watermark BIGINT NOT NULL,
        revision BIGINT NOT NULL,
        row_ids {bytes} NOT NULL,
        PRIMARY KEY (subject_id, digest)
    )
    """,
    # No foreign key: jobs are history and outlive their table.
    """
    CREATE TABLE jobs (
        job_id {name} PRIMARY KEY,
        kind TEXT NOT NULL,
        table_id {id} NOT NULL,
        table_levels TEXT NOT NULL,
        subject_id {id} NOT NULL,
        request TEXT NOT NULL,
        state TEXT NOT NULL,
        submitted_by {name} NOT NULL,
        idempotency_key {name},
        epoch BIGINT NOT NULL,
        owner TEXT,
        lease_until_at BIGINT,
        cancel_requested_at BIGINT,
        created_at BIGINT NOT NULL,
        started_at BIGINT,
        finished_at BIGINT,
        updated_at BIGINT NOT NULL,
        progress TEXT NOT NULL,
        result TEXT,
        failure TEXT,
        event_count BIGINT NOT NULL,
        part_count BIGINT NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX jobs_active_subject ON jobs (subject_id) WHERE state IN ('QUEUED', 'RUNNING')",
    "CREATE INDEX jobs_waiting ON jobs (created_at, job_id) WHERE state IN ('QUEUED', 'RUNNING')",
    """
    CREATE UNIQUE INDEX jobs_idempotency ON jobs (submitted_by, idempotency_key)
        WHERE idempotency_key IS NOT NULL
    """,
    """
    CREATE TABLE job_events (
        job_id {name} NOT NULL REFERENCES jobs (job_id),
        sequence BIGINT NOT NULL,
        at BIGINT NOT NULL,
        kind TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (job_id, sequence)
    )
    """,
    """
    CREATE TABLE job_parts (
        job_id {name} NOT NULL REFERENCES jobs (job_id),
        part {name} NOT NULL,
        sequence BIGINT NOT NULL,
        epoch BIGINT NOT NULL,
        table_id {id} NOT NULL,
        version BIGINT NOT NULL,
        row_ids {bytes} NOT NULL,
        PRIMARY KEY (job_id, part)
    )
    """,
    """
    CREATE TABLE workers (
        owner {name} PRIMARY KEY,
        last_seen_at BIGINT NOT NULL
    )
    """,
)


def upgrade(connection: Connection) -> None:
    types = TYPES[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format_map(types))
