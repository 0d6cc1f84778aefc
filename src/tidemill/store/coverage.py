"""Coverage as rows: bitmaps in their portable serialization, and the subjects they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from pyroaring import BitMap64
from sqlalchemy import Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import ConcurrentModification
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.jobs.model.columns import subject_of
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.views import source_subject
from tidemill.store.schema import computed_columns, coverage, row_errors, table_versions, view_sources
from tidemill.store.schema import coverage as stored


class SqlCoverageRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, subject_id: UUID, digest: str) -> Coverage | None:
        query = select(stored).where(stored.c.subject_id == subject_id, stored.c.digest == digest)
        row = self._connection.execute(query).first()
        return None if row is None else _coverage(row)

    def list_of(self, subject_id: UUID) -> Sequence[Coverage]:
        query = select(stored).where(stored.c.subject_id == subject_id).order_by(stored.c.digest)
        return [_coverage(row) for row in self._connection.execute(query)]

    def withdraw(self, subject_id: UUID, digest: str, rows: BitMap64) -> None:
        for other in self._lock_others(subject_id, digest):
            if not other.held.isdisjoint(rows):
                remaining = replace(other, rows=other.rows - rows, outdated=other.outdated - rows)
                self._update(subject_id, remaining)

    def put(self, subject_id: UUID, coverage: Coverage) -> None:
        if coverage.revision == 0:
            self._insert(subject_id, coverage)
        else:
            self._update(subject_id, coverage)

    def check_revision(self, subject_id: UUID, coverage: Coverage) -> None:
        """Raises ConcurrentModification if `put` would."""
        query = select(stored.c.revision).where(
            stored.c.subject_id == subject_id, stored.c.digest == coverage.digest
        )
        if (self._connection.scalar(query) or 0) != coverage.revision:
            raise _conflict(subject_id, coverage)

    def _insert(self, subject_id: UUID, coverage: Coverage) -> None:
        row = {
            "subject_id": subject_id,
            "digest": coverage.digest,
            "watermark": coverage.watermark,
            "revision": 1,
            "row_ids": _serialized(coverage.rows),
            "published": coverage.published,
            "outdated_row_ids": _serialized(coverage.outdated),
        }
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(stored).values(row))
        except IntegrityError as error:
            raise _conflict(subject_id, coverage) from error

    def _update(self, subject_id: UUID, coverage: Coverage) -> None:
        changed = self._connection.execute(
            update(stored)
            .where(
                stored.c.subject_id == subject_id,
                stored.c.digest == coverage.digest,
                stored.c.revision == coverage.revision,
            )
            .values(
                watermark=coverage.watermark,
                revision=coverage.revision + 1,
                row_ids=_serialized(coverage.rows),
                published=coverage.published,
                outdated_row_ids=_serialized(coverage.outdated),
            )
        )
        if not changed.rowcount:
            raise _conflict(subject_id, coverage)

    def _lock_others(self, subject_id: UUID, digest: str) -> list[Coverage]:
        """Coverage of all other digests, locked in a fixed order until it is updated."""
        query = (
            select(stored)
            .where(stored.c.subject_id == subject_id, stored.c.digest != digest)
            .order_by(stored.c.digest)
            .with_for_update()
        )
        return [_coverage(row) for row in self._connection.execute(query)]


def _coverage(row: Row[Any]) -> Coverage:
    return Coverage(
        digest=row.digest,
        watermark=row.watermark,
        rows=BitMap64.deserialize(row.row_ids),
        revision=row.revision,
        published=row.published,
        outdated=BitMap64() if row.outdated_row_ids is None else BitMap64.deserialize(row.outdated_row_ids),
    )


def _serialized(row_ids: BitMap64) -> bytes:
    packed = row_ids.copy()
    packed.run_optimize()
    return packed.serialize()


def _conflict(subject_id: UUID, coverage: Coverage) -> ConcurrentModification:
    return ConcurrentModification(
        f"The coverage of {subject_id} by {coverage.digest} is no longer at revision {coverage.revision}"
    )


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
