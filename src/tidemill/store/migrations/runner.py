"""Upgrades a database to the current schema, one numbered migration after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Connection, func, insert, select

from tidemill.errors import Unavailable
from tidemill.store.column_types import DatabaseTime
from tidemill.store.migrations import (
    m0001_initial,
    m0002_transactions,
    m0003_execution,
    m0004_secrets_and_queries,
    m0005_functions_at_work,
    m0006_views,
    m0007_iceberg,
    m0008_deferred_effects,
    m0009_kept_values,
    m0010_exact_coverage,
    m0011_access,
    m0012_audit,
    m0013_sealed_variables,
    m0014_function_owners,
)
from tidemill.store.schema import schema_migrations

Migration = Callable[[Connection], None]

MIGRATIONS: Final[Sequence[Migration]] = (
    m0001_initial.upgrade,
    m0002_transactions.upgrade,
    m0003_execution.upgrade,
    m0004_secrets_and_queries.upgrade,
    m0005_functions_at_work.upgrade,
    m0006_views.upgrade,
    m0007_iceberg.upgrade,
    m0008_deferred_effects.upgrade,
    m0009_kept_values.upgrade,
    m0010_exact_coverage.upgrade,
    m0011_access.upgrade,
    m0012_audit.upgrade,
    m0013_sealed_variables.upgrade,
    m0014_function_owners.upgrade,
)
"""In order, starting with number 1. A released migration never changes."""

MIGRATION_LOCK: Final = 0x7469_6465  # "tide"


def migrate(connection: Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Applies missing migrations; processes that start together take turns.

    Raises Unavailable if the database has a newer schema.
    """
    if connection.dialect.name == "postgresql":
        # Waiting for another process and migrating may exceed the usual statement timeout.
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
    connection.exec_driver_sql(
        "CREATE TABLE IF NOT EXISTS schema_migrations"
        " (version INTEGER PRIMARY KEY, applied_at BIGINT NOT NULL)"
    )
    current = connection.scalar(select(func.max(schema_migrations.c.version))) or 0
    if current > len(migrations):
        raise Unavailable(
            f"The catalog database has schema {current} but this Tidemill only knows {len(migrations)}; "
            "start a newer Tidemill"
        )
    for number, upgrade in enumerate(migrations[current:], start=current + 1):
        upgrade(connection)
        connection.execute(insert(schema_migrations).values(version=number, applied_at=DatabaseTime()))
