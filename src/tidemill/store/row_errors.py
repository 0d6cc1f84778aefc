"""The ledger of rows on which functions failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from pyroaring import BitMap64
from sqlalchemy import Connection, Row, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import ConcurrentModification
from tidemill.jobs.model.failures import RowError, RowFailure
from tidemill.store.column_types import DatabaseTime
from tidemill.store.schema import row_errors as rows

DELETE_CHUNK_SIZE: Final = 500
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
