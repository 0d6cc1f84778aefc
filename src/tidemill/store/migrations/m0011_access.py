"""Clients with API keys, roles with members, grants, and a revision that every change to them raises."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tidemill.store.migrations.m0001_initial import TYPES

STATEMENTS: Final = (
    "CREATE TABLE access_revision (revision BIGINT NOT NULL)",
    "INSERT INTO access_revision VALUES (0)",
    """
    CREATE TABLE clients (
        client_id {name} PRIMARY KEY,
        description TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at BIGINT NOT NULL
    )
    """,
    """
    CREATE TABLE api_keys (
        key_id {name} PRIMARY KEY,
        client_id {name} NOT NULL REFERENCES clients (client_id) ON DELETE CASCADE,
        name {name} NOT NULL,
        digest {bytes} NOT NULL,
        scope TEXT,
        created_at BIGINT NOT NULL,
        expires_at BIGINT,
        last_used_at BIGINT,
        UNIQUE (client_id, name)
    )
    """,
    """
    CREATE TABLE roles (
        name {name} PRIMARY KEY,
        description TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at BIGINT NOT NULL
    )
    """,
    """
    CREATE TABLE role_members (
        role {name} NOT NULL REFERENCES roles (name) ON DELETE CASCADE,
        principal {name} NOT NULL,
        PRIMARY KEY (role, principal)
    )
    """,
    # By id, so that a grant follows a renamed table and ends with what it is on. Functions are objects by
    # name, because a name stands for all versions of a function.
    """
    CREATE TABLE grants (
        grant_id {id} PRIMARY KEY,
        grantee_kind TEXT NOT NULL,
        grantee {name} NOT NULL,
        permission TEXT NOT NULL,
        namespace_id {id} REFERENCES namespaces (namespace_id) ON DELETE CASCADE,
        table_id {id} REFERENCES tables (table_id) ON DELETE CASCADE,
        function {name},
        granted_by TEXT NOT NULL,
        granted_at BIGINT NOT NULL,
        CHECK ((namespace_id IS NULL) <> (table_id IS NULL)),
        CHECK (function IS NULL OR namespace_id IS NOT NULL)
    )
    """,
    # Removing a table or namespace looks for its grants.
    "CREATE INDEX grants_of_table ON grants (table_id)",
    "CREATE INDEX grants_of_namespace ON grants (namespace_id)",
)


def upgrade(connection: Connection) -> None:
    types = TYPES[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format_map(types))
