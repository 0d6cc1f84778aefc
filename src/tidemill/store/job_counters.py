"""Numbers that count what belongs to a job."""

from __future__ import annotations

from sqlalchemy import Column, Connection, update

from tidemill.jobs.errors import JobNotFound
from tidemill.store.schema import jobs


def next_number(connection: Connection, job_id: str, counter: Column[int]) -> int:
    """1, 2, 3…: the row of the job is locked meanwhile, so no number is given twice and none is left out."""
    increment = update(jobs).where(jobs.c.job_id == job_id).values({counter: counter + 1}).returning(counter)
    number = connection.scalar(increment)
    if number is None:
        raise JobNotFound(job_id)
    return number
