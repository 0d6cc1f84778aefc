"""Functions by namespace, and owners of computed columns and materialized views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import orjson
from sqlalchemy import (
    BigInteger,
    Connection,
    LargeBinary,
    Text,
    Uuid,
    column,
    insert,
    select,
    table,
    update,
)

from tidemill.store.migrations.m0001_initial import TYPES

ROOT: Final = UUID(int=0)
BEFORE: Final = (
    "DROP INDEX functions_version",
    "ALTER TABLE functions RENAME TO earlier_functions",
    """
    CREATE TABLE functions (
        namespace_id {id} NOT NULL,
        digest {name} NOT NULL,
        name {name} NOT NULL,
        envelope {bytes} NOT NULL,
        registered_by TEXT NOT NULL,
        registered_at BIGINT NOT NULL,
        version BIGINT NOT NULL,
        dropped_at BIGINT,
        PRIMARY KEY (namespace_id, digest)
    )
    """,
    *(
        statement
        for name in ("computed_columns", "materialized_views")
        for statement in (
            f"ALTER TABLE {name} ADD COLUMN function_namespace_id {{id}}"
            " NOT NULL DEFAULT '00000000000000000000000000000000'",
            f"ALTER TABLE {name} ADD COLUMN owner TEXT",
            f"ALTER TABLE {name} ADD COLUMN owner_roles TEXT NOT NULL DEFAULT '[]'",
        )
    ),
)
AFTER: Final = (
    "DROP TABLE earlier_functions",
    "CREATE UNIQUE INDEX functions_version ON functions (namespace_id, name, version)",
    "CREATE INDEX functions_digest ON functions (digest)",
    "CREATE INDEX functions_name ON functions (name)",
)

# The tables as of this migration; later ones may change them.
COLUMNS: Final = {
    "digest": Text,
    "name": Text,
    "envelope": LargeBinary,
    "registered_by": Text,
    "registered_at": BigInteger,
    "version": BigInteger,
    "dropped_at": BigInteger,
}
earlier_functions: Final = table("earlier_functions", *(column(name, kind) for name, kind in COLUMNS.items()))
functions: Final = table(
    "functions", column("namespace_id", Uuid), *(column(name, kind) for name, kind in COLUMNS.items())
)
namespaces: Final = table(
    "namespaces", column("namespace_id", Uuid), column("parent_id", Uuid), column("name", Text)
)
columns: Final = table(
    "computed_columns", column("function_digest", Text), column("function_namespace_id", Uuid)
)


def upgrade(connection: Connection) -> None:
    types = TYPES[connection.dialect.name]
    for statement in BEFORE:
        connection.exec_driver_sql(statement.format_map(types))
    _move_functions(connection)
    for statement in AFTER:
        connection.exec_driver_sql(statement.format_map(types))


def _move_functions(connection: Connection) -> None:
    """lancedb's functions have their namespace in their name. All others go to the root."""
    for row in connection.execute(select(earlier_functions)).all():
        namespace_id = _namespace_of(connection, row.name, orjson.loads(row.envelope or b"{}"))
        connection.execute(insert(functions).values(namespace_id=namespace_id, **row._asdict()))
        if namespace_id != ROOT:
            using = update(columns).where(columns.c.function_digest == row.digest)
            connection.execute(using.values(function_namespace_id=namespace_id))


def _namespace_of(connection: Connection, name: str, envelope: Mapping[str, Any]) -> UUID:
    """The root as well if the namespace was dropped."""
    if "lancedb" not in envelope.get("declared", {}) and not envelope.get("arguments"):
        return ROOT
    # A class with arguments is named after its registration: `namespace$name(argument=value)`.
    *levels, _ = name.partition("(")[0].split("$")
    found = ROOT
    for level in levels:
        query = select(namespaces.c.namespace_id).where(
            namespaces.c.parent_id == found, namespaces.c.name == level
        )
        below = connection.scalar(query)
        if below is None:
            return ROOT
        found = below
    return found
