"""The subject ids under which coverage and row errors of columns and views are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, delete, select

from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.jobs.model.derived import source_subject, subject_of
from tidemill.store.schema import computed_columns, coverage, row_errors, table_versions, view_sources


def column_subjects(connection: Connection, table_id: UUID, branch: str) -> list[UUID]:
    """Subjects of all computed columns of a table, on one branch."""
    query = select(computed_columns.c.column_id).where(computed_columns.c.table_id == table_id)
    return [subject_of(column_id, branch) for column_id in connection.scalars(query)]


def view_subjects(connection: Connection, view_id: UUID) -> list[UUID]:
    """Subjects of a view, one per source. For a plain table nothing is stored under them."""
    query = select(view_sources).where(view_sources.c.view_id == view_id)
    source_subjects = [_subject(row) for row in connection.execute(query)]
    return [view_id, *(subject for subject in source_subjects if subject != view_id)]


def reader_subjects(connection: Connection, source_id: UUID) -> list[UUID]:
    """Subjects of every view that reads the table, for that source."""
    query = select(view_sources).where(view_sources.c.source_id == source_id)
    return [_subject(row) for row in connection.execute(query)]


def branches_of(connection: Connection, table_id: UUID) -> Sequence[str]:
    """The main branch, and every other branch that has a version."""
    query = select(table_versions.c.branch).where(table_versions.c.table_id == table_id).distinct()
    return sorted({MAIN_BRANCH, *connection.scalars(query)})


def forget_subjects(connection: Connection, subjects: Iterable[UUID]) -> None:
    subject_ids = list(subjects)
    for table in (coverage, row_errors):
        connection.execute(delete(table).where(table.c.subject_id.in_(subject_ids)))


def _subject(row: Row[Any]) -> UUID:
    return source_subject(row.view_id, row.source_id, row.place)
