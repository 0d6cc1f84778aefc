"""What is kept under the subjects of a table: coverage and errors of its columns, on each branch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import Connection, delete, select

from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.jobs.model.derived import subject_of
from tidemill.store.schema import computed_columns, coverage, row_errors, table_versions


def column_subjects(connection: Connection, table_id: UUID, branch: str) -> list[UUID]:
    """Of all columns of the table on one branch."""
    query = select(computed_columns.c.column_id).where(computed_columns.c.table_id == table_id)
    return [subject_of(column_id, branch) for column_id in connection.scalars(query)]


def branches_of(connection: Connection, table_id: UUID) -> Sequence[str]:
    """Main, and every other that has a version."""
    query = select(table_versions.c.branch).where(table_versions.c.table_id == table_id).distinct()
    return sorted({MAIN_BRANCH, *connection.scalars(query)})


def forget_subjects(connection: Connection, subjects: Iterable[UUID]) -> None:
    forgotten = list(subjects)
    for kept in (coverage, row_errors):
        connection.execute(delete(kept).where(kept.c.subject_id.in_(forgotten)))
