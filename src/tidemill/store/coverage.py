"""Coverage as rows: the bitmap in its portable form."""

from __future__ import annotations

from uuid import UUID

from pyroaring import BitMap64
from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import ConcurrentModification
from tidemill.jobs.model.coverage import Coverage
from tidemill.store.schema import coverage as rows


class SqlCoverageRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, subject_id: UUID, digest: str) -> Coverage | None:
        query = select(rows).where(rows.c.subject_id == subject_id, rows.c.digest == digest)
        row = self._connection.execute(query).first()
        if row is None:
            return None
        return Coverage(row.digest, row.watermark, BitMap64.deserialize(row.row_ids), row.revision)

    def put(self, subject_id: UUID, coverage: Coverage) -> None:
        if coverage.revision == 0:
            self._insert(subject_id, coverage)
        else:
            self._update(subject_id, coverage)

    def _insert(self, subject_id: UUID, coverage: Coverage) -> None:
        row = {
            "subject_id": subject_id,
            "digest": coverage.digest,
            "watermark": coverage.watermark,
            "revision": 1,
            "row_ids": _packed(coverage.rows),
        }
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(rows).values(row))
        except IntegrityError as error:
            raise _changed(subject_id, coverage) from error

    def _update(self, subject_id: UUID, coverage: Coverage) -> None:
        changed = self._connection.execute(
            update(rows)
            .where(
                rows.c.subject_id == subject_id,
                rows.c.digest == coverage.digest,
                rows.c.revision == coverage.revision,
            )
            .values(
                watermark=coverage.watermark, revision=coverage.revision + 1, row_ids=_packed(coverage.rows)
            )
        )
        if not changed.rowcount:
            raise _changed(subject_id, coverage)


def _packed(row_ids: BitMap64) -> bytes:
    packed = row_ids.copy()
    packed.run_optimize()
    return packed.serialize()


def _changed(subject_id: UUID, coverage: Coverage) -> ConcurrentModification:
    return ConcurrentModification(
        f"The coverage of {subject_id} by {coverage.digest} is no longer at revision {coverage.revision}"
    )
