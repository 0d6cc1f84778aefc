"""The ledger of parts that jobs have committed."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import ConcurrentModification
from tidemill.jobs.model.jobs import Part
from tidemill.store.job_counters import next_number
from tidemill.store.schema import job_parts, jobs


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
