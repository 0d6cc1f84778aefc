"""Jobs as rows: submitting, listing, cancelling, pausing and resuming them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import ConcurrentModification
from tidemill.jobs.errors import JobAlreadyActive, JobNotFound
from tidemill.jobs.model.jobs import ANY_JOB, IndexRequest, Job, JobFilter
from tidemill.jobs.model.state import ACTIVE_STATES, JobState, check_transition
from tidemill.store.column_types import DatabaseTime
from tidemill.store.job_rows import job_of, job_values
from tidemill.store.schema import jobs


class SqlJobRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, job: Job) -> None:
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(jobs).values(job_values(job)))
        except IntegrityError as error:
            active = self._find(jobs.c.subject_id == job.subject_id, jobs.c.state.in_(ACTIVE_STATES))
            if active is None:
                raise ConcurrentModification(
                    f"Job {job.job_id} or its idempotency key was submitted at the same time; submit it again"
                ) from error
            raise JobAlreadyActive(_describe_subject(job), active.job_id) from error

    def get(self, job_id: str) -> Job:
        job = self._find(jobs.c.job_id == job_id)
        if job is None:
            raise JobNotFound(job_id)
        return job

    def find_by_key(self, submitted_by: str, idempotency_key: str) -> Job | None:
        return self._find(jobs.c.submitted_by == submitted_by, jobs.c.idempotency_key == idempotency_key)

    def list_recent(self, before: str | None, limit: int, wanted: JobFilter = ANY_JOB) -> Sequence[Job]:
        query = select(jobs).where(*_filter_conditions(wanted)).order_by(jobs.c.job_id.desc()).limit(limit)
        if before is not None:
            query = query.where(jobs.c.job_id < before)
        return [job_of(row) for row in self._connection.execute(query)]

    def list_active(self, table_id: UUID) -> Sequence[Job]:
        query = (
            select(jobs)
            .where(jobs.c.table_id == table_id, jobs.c.state.in_(ACTIVE_STATES))
            .order_by(jobs.c.job_id)
        )
        return [job_of(row) for row in self._connection.execute(query)]

    def request_cancel(self, job_id: str) -> Job:
        state = self._locked_state(job_id)
        check_transition(job_id, state, JobState.CANCELLED)
        changes: dict[str, Any] = {
            "cancel_requested_at": func.coalesce(jobs.c.cancel_requested_at, DatabaseTime())
        }
        if state is not JobState.RUNNING:
            changes |= {"state": JobState.CANCELLED, "finished_at": DatabaseTime()}
        return self._change(job_id, changes)

    def request_pause(self, job_id: str) -> Job:
        state = self._locked_state(job_id)
        if state is JobState.PAUSED:
            return self.get(job_id)
        check_transition(job_id, state, JobState.PAUSED)
        if state is JobState.RUNNING:
            requested_at = func.coalesce(jobs.c.pause_requested_at, DatabaseTime())
            return self._change(job_id, {"pause_requested_at": requested_at})
        return self._change(job_id, {"state": JobState.PAUSED})

    def resume(self, job_id: str) -> Job:
        state = self._locked_state(job_id)
        if state is JobState.QUEUED:
            return self.get(job_id)
        check_transition(job_id, state, JobState.QUEUED)
        if state is JobState.RUNNING:
            return self._change(job_id, {"pause_requested_at": None})
        return self._change(job_id, {"state": JobState.QUEUED})

    def _locked_state(self, job_id: str) -> JobState:
        state = self._connection.scalar(select(jobs.c.state).where(jobs.c.job_id == job_id).with_for_update())
        if state is None:
            raise JobNotFound(job_id)
        return JobState(state)

    def _change(self, job_id: str, changes: dict[str, Any]) -> Job:
        changed = (
            update(jobs)
            .where(jobs.c.job_id == job_id)
            .values({**changes, "updated_at": DatabaseTime()})
            .returning(jobs)
        )
        return job_of(self._connection.execute(changed).one())

    def _find(self, *conditions: ColumnElement[bool]) -> Job | None:
        row = self._connection.execute(select(jobs).where(*conditions)).first()
        return None if row is None else job_of(row)


def _filter_conditions(wanted: JobFilter) -> Iterator[ColumnElement[bool]]:
    for field in fields(wanted):
        value = getattr(wanted, field.name)
        if value is not None:
            yield jobs.c[field.name] == value


def _describe_subject(job: Job) -> str:
    if isinstance(job.request, IndexRequest):
        return f"index '{job.request.name}' of {job.table}"
    return str(job.table) if job.column is None else f"column '{job.column}' of {job.table}"
