"""Views with several sources, and refresh settings of views."""

from __future__ import annotations

from typing import Final

import orjson
from sqlalchemy import Connection, Integer, Text, Uuid, column, insert, select, table, update

from tidemill.store.migrations.m0001_initial import TYPES

BEFORE: Final = (
    # Not a foreign key: a source may be dropped while the view keeps its rows.
    """
    CREATE TABLE view_sources (
        view_id {id} NOT NULL REFERENCES materialized_views (view_id) ON DELETE CASCADE,
        place INTEGER NOT NULL,
        source_id {id} NOT NULL,
        levels TEXT NOT NULL,
        source_columns TEXT NOT NULL,
        PRIMARY KEY (view_id, place)
    )
    """,
    "CREATE INDEX view_sources_source ON view_sources (source_id)",
)
AFTER: Final = (
    "DROP INDEX materialized_views_source",
    "ALTER TABLE materialized_views DROP COLUMN source_id",
    "ALTER TABLE materialized_views ADD COLUMN partition_index TEXT",
    "ALTER TABLE materialized_views ADD COLUMN statement TEXT",
    "ALTER TABLE materialized_views ADD COLUMN policy TEXT NOT NULL DEFAULT 'auto'",
    "ALTER TABLE materialized_views ADD COLUMN on_error TEXT NOT NULL DEFAULT '{{}}'",
    "ALTER TABLE materialized_views ADD COLUMN environment TEXT NOT NULL DEFAULT '{{}}'",
)

# The tables as of this migration; later ones may change them.
views: Final = table(
    "materialized_views", column("view_id", Uuid), column("source_id", Uuid), column("query", Text)
)
view_sources: Final = table(
    "view_sources",
    column("view_id", Uuid),
    column("place", Integer),
    column("source_id", Uuid),
    column("levels", Text),
    column("source_columns", Text),
)
jobs: Final = table("jobs", column("job_id", Text), column("kind", Text), column("request", Text))


def upgrade(connection: Connection) -> None:
    types = TYPES[connection.dialect.name]
    for statement in BEFORE:
        connection.exec_driver_sql(statement.format_map(types))
    _move_sources(connection)
    for statement in AFTER:
        connection.exec_driver_sql(statement.format_map(types))
    _rename_full(connection)


def _move_sources(connection: Connection) -> None:
    moved = [
        {
            "view_id": row.view_id,
            "place": 0,
            "source_id": row.source_id,
            "levels": orjson.dumps(orjson.loads(row.query)["source"]).decode(),
            "source_columns": "[]",
        }
        for row in connection.execute(select(views))
    ]
    if moved:
        connection.execute(insert(view_sources), moved)


def _rename_full(connection: Connection) -> None:
    """Replaces the old `is_full` flag of refresh requests with the policy `full`."""
    flagged = select(jobs).where(jobs.c.kind == "refresh", jobs.c.request.like('%"is_full":true%'))
    for row in connection.execute(flagged).all():
        request = {**orjson.loads(row.request), "policy": "full"}
        del request["is_full"]
        changed = update(jobs).where(jobs.c.job_id == row.job_id)
        connection.execute(changed.values(request=orjson.dumps(request).decode()))
