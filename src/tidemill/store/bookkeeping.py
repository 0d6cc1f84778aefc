"""What jobs have done, as rows: coverage, committed parts, and rows on which functions failed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final
from uuid import UUID

from pyroaring import BitMap64
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    Text,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import ConcurrentModification
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.jobs.errors import JobNotFound
from tidemill.jobs.model.columns import subject_of
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.failures import RowError, RowFailure
from tidemill.jobs.model.jobs import Part
from tidemill.jobs.model.views import function_subject, source_subject
from tidemill.store.column_types import DatabaseTime
from tidemill.store.compiled_statements import CompiledStatement
from tidemill.store.schema import (
    computed_columns,
    coverage,
    job_parts,
    jobs,
    materialized_views,
    row_errors,
    table_versions,
    view_sources,
)
from tidemill.store.schema import coverage as stored
from tidemill.store.schema import row_errors as rows

DELETE_CHUNK_SIZE: Final = 500


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

    def segments_in_use(self) -> frozenset[str]:
        found = self._connection.scalars(select(stored.c.segments))
        return frozenset(path for segments in found for path in segments)

    def withdraw(
        self, subject_id: UUID, digest: str, rows: BitMap64, kept_digests: Collection[str] = ()
    ) -> None:
        for other in self._lock_others(subject_id, digest):
            if not other.held.isdisjoint(rows):
                remaining = replace(other, rows=other.rows - rows, outdated=other.outdated - rows)
                if other.digest not in kept_digests:
                    remaining = replace(remaining, files=BitMap64())
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
            "files": _serialized(coverage.files),
            "segments": list(coverage.segments),
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
                files=_serialized(coverage.files),
                segments=list(coverage.segments),
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
        outdated=_bitmap(row.outdated_row_ids),
        files=_bitmap(row.files),
        segments=tuple(row.segments),
    )


def _bitmap(content: bytes | None) -> BitMap64:
    return BitMap64() if content is None else BitMap64.deserialize(content)


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
    """Subjects of a view, one per source and function. For a plain table nothing is stored under them."""
    query = select(view_sources).where(view_sources.c.view_id == view_id)
    source_subjects = [_subject(row) for row in connection.execute(query)]
    columns = connection.scalar(select(materialized_views.c.columns).where(_is_view(view_id))) or ()
    functions = [function_subject(view_id, name) for name in (None, *(column["name"] for column in columns))]
    return [view_id, *(subject for subject in source_subjects if subject != view_id), *functions]


def _is_view(view_id: UUID) -> ColumnElement[bool]:
    return materialized_views.c.view_id == view_id


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


class SqlPartLedger:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, part: Part) -> None:
        row = {
            "job_id": part.job_id,
            "part": part.part,
            "epoch": part.epoch,
            "table_id": part.table_id,
            "version": part.version,
            "row_ids": part.rows,
        }
        try:
            with self._connection.begin_nested():
                sequence = next_number(self._connection, part.job_id, jobs.c.part_count)
                self._connection.execute(insert(job_parts).values({**row, "sequence": sequence}))
        except IntegrityError as error:
            raise _applied(part) from error

    def check_new(self, part: Part) -> None:
        """Raises ConcurrentModification if the part was already applied."""
        query = select(job_parts.c.part).where(
            job_parts.c.job_id == part.job_id, job_parts.c.part == part.part
        )
        if self._connection.scalar(query) is not None:
            raise _applied(part)

    def list_of(self, job_id: str) -> Sequence[Part]:
        query = select(job_parts).where(job_parts.c.job_id == job_id).order_by(job_parts.c.sequence)
        return [
            Part(row.job_id, row.part, row.epoch, row.table_id, row.version, row.row_ids)
            for row in self._connection.execute(query)
        ]

    def versions_of(self, subject_id: UUID, above: int) -> frozenset[int]:
        query = (
            select(job_parts.c.version)
            .join(jobs, jobs.c.job_id == job_parts.c.job_id)
            .where(jobs.c.subject_id == subject_id, job_parts.c.version > above)
        )
        return frozenset(self._connection.scalars(query))


def _applied(part: Part) -> ConcurrentModification:
    return ConcurrentModification(f"Part '{part.part}' of job {part.job_id} is already applied")


"""Maximum number of rows per DELETE; databases limit the number of parameters."""


class SqlRowErrorLedger:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def settle(self, subject_id: UUID, done: BitMap64 | None, errors: Sequence[RowError]) -> None:
        # A failure without a row is recorded with the job only.
        errors_by_row = {error.failure.row_id: error for error in errors if error.failure.row_id is not None}
        self._remove(subject_id, None if done is None else done | BitMap64(errors_by_row))
        if not errors_by_row:
            return
        try:
            with self._connection.begin_nested():
                self._connection.execute(
                    insert(rows).values(at=DatabaseTime()),
                    [_values(subject_id, row_id, error) for row_id, error in errors_by_row.items()],
                )
        except IntegrityError as conflict:
            raise ConcurrentModification(
                f"Errors of {subject_id} were recorded at the same time; try again"
            ) from conflict

    def rows_of(self, subject_id: UUID, digest: str) -> BitMap64:
        query = select(rows.c.row_id).where(
            rows.c.subject_id == subject_id, rows.c.digest == digest, rows.c.is_skipped.is_(True)
        )
        return BitMap64(self._connection.scalars(query).all())

    def count_of(self, subject_id: UUID, job_id: str) -> int:
        query = (
            select(func.count())
            .select_from(rows)
            .where(rows.c.subject_id == subject_id, rows.c.job_id == job_id, rows.c.is_skipped.is_(True))
        )
        return self._connection.scalar(query) or 0

    def list_of(
        self, subject_id: UUID, after: int | None, limit: int, job_id: str | None = None
    ) -> Sequence[RowError]:
        query = select(rows).where(rows.c.subject_id == subject_id).order_by(rows.c.row_id).limit(limit)
        if after is not None:
            query = query.where(rows.c.row_id > after)
        if job_id is not None:
            query = query.where(rows.c.job_id == job_id)
        return [_error(row) for row in self._connection.execute(query)]

    def _remove(self, subject_id: UUID, settled: BitMap64 | None) -> None:
        """Iterates over the recorded errors: there are few, while there may be millions of settled rows."""
        existing = self._connection.scalars(select(rows.c.row_id).where(rows.c.subject_id == subject_id))
        removed = [row_id for row_id in existing if settled is None or row_id in settled]
        for start in range(0, len(removed), DELETE_CHUNK_SIZE):
            self._connection.execute(
                delete(rows).where(
                    rows.c.subject_id == subject_id,
                    rows.c.row_id.in_(removed[start : start + DELETE_CHUNK_SIZE]),
                )
            )


def _values(subject_id: UUID, row_id: int, error: RowError) -> dict[str, Any]:
    failure = error.failure
    return {
        "subject_id": subject_id,
        "row_id": row_id,
        "digest": error.digest,
        "job_id": error.job_id,
        "exception": _storable(failure.exception),
        "message": _storable(failure.message),
        "traceback": _storable(failure.traceback),
        "attempts": failure.attempts,
        "is_skipped": error.is_skipped,
    }


def _error(row: Row[Any]) -> RowError:
    failure = RowFailure(row.row_id, row.exception, row.message, row.traceback, row.attempts)
    return RowError(row.subject_id, row.digest, row.job_id, failure, row.is_skipped, row.at)


def _storable(text: str) -> str:
    """Replaces lone surrogates, which no column can hold, and NUL, which PostgreSQL cannot."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def next_number(connection: Connection, job_id: str, counter: Column[int]) -> int:
    """Returns 1, 2, 3… without duplicates or gaps: the job's row stays locked until the transaction ends."""
    found = _next_number_statement(counter).all(connection, {"job": job_id})
    if not found:
        raise JobNotFound(job_id)
    return int(found[0][0])


@cache
def _next_number_statement(counter: Column[int]) -> CompiledStatement:
    is_wanted = jobs.c.job_id == bindparam("job", type_=Text)
    return CompiledStatement(update(jobs).where(is_wanted).values({counter: counter + 1}).returning(counter))
