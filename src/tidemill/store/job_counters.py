"""Sequence numbers of the events and parts of a job."""

from __future__ import annotations

from sqlalchemy import Column, Connection, update

from tidemill.jobs.errors import JobNotFound
from tidemill.store.schema import jobs


def next_number(connection: Connection, job_id: str, counter: Column[int]) -> int:
    """Returns 1, 2, 3… without duplicates or gaps: the job's row stays locked until the transaction ends."""
    increment = update(jobs).where(jobs.c.job_id == job_id).values({counter: counter + 1}).returning(counter)
    number = connection.scalar(increment)
    if number is None:
        raise JobNotFound(job_id)
    return number
