"""Function versions whose values a column keeps."""

from __future__ import annotations

from sqlalchemy import Connection


def upgrade(connection: Connection) -> None:
    connection.exec_driver_sql(
        "ALTER TABLE computed_columns ADD COLUMN kept_digests TEXT NOT NULL DEFAULT '[]'"
    )
