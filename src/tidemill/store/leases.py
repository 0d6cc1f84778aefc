"""Leases on jobs: they expire by the database clock and are fenced by an epoch.

A worker claims the oldest queued job, or one whose lease has expired, and renews the lease while it works.
Every claim increments the epoch, and every write under a lease checks it. A worker that was suspended past
its lease therefore gets LeaseLost instead of overwriting the results of its successor.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, case, func, or_, select, update

from tidemill.jobs.errors import InvalidJobTransition, LeaseLost
from tidemill.jobs.model.jobs import DEFAULT_CLUSTER, Job, JobState, Lease, Progress
from tidemill.store.column_types import DatabaseTime, in_milliseconds
from tidemill.store.jobs import job_of, outcome_values, progress_values
from tidemill.store.schema import jobs


class SqlJobLeases:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def claim(self, owner: str, duration: timedelta, cluster: str = DEFAULT_CLUSTER) -> Job | None:
        has_expired = and_(jobs.c.state == JobState.RUNNING, jobs.c.lease_until_at <= DatabaseTime())
        oldest = (
            select(jobs.c.job_id)
            .where(jobs.c.cluster == cluster, or_(jobs.c.state == JobState.QUEUED, has_expired))
            .order_by(jobs.c.created_at, jobs.c.job_id)
            .limit(1)
            .with_for_update(skip_locked=True)
            .scalar_subquery()
        )
        claimed = (
            update(jobs)
            .where(jobs.c.job_id == oldest)
            .values(
                state=JobState.RUNNING,
                epoch=jobs.c.epoch + 1,
                attempt=jobs.c.attempt + 1,
                owner=owner,
                lease_until_at=DatabaseTime() + in_milliseconds(duration),
                started_at=func.coalesce(jobs.c.started_at, DatabaseTime()),
                updated_at=DatabaseTime(),
            )
            .returning(jobs)
        )
        row = self._connection.execute(claimed).first()
        return None if row is None else job_of(row)

    def renew(self, lease: Lease, duration: timedelta) -> Job:
        return job_of(self._change(lease, lease_until_at=DatabaseTime() + in_milliseconds(duration)))

    def check(self, lease: Lease) -> None:
        query = select(jobs.c.job_id).where(_is_held(lease)).with_for_update()
        if self._connection.scalar(query) is None:
            raise LeaseLost(lease.job_id, lease.epoch)

    def record_progress(self, lease: Lease, progress: Progress) -> None:
        self._change(lease, progress=progress_values(progress))

    def finish(self, lease: Lease, ended: Job) -> None:
        self.check(lease)
        if not ended.state.is_final:
            raise InvalidJobTransition(lease.job_id, JobState.RUNNING, ended.state)
        self._change(lease, lease_until_at=None, finished_at=DatabaseTime(), **outcome_values(ended))

    def suspend(self, lease: Lease, progress: Progress) -> Job:
        # A job cancelled in the meantime is queued again so that a worker ends it as cancelled.
        should_requeue = or_(jobs.c.pause_requested_at.is_(None), jobs.c.cancel_requested_at.is_not(None))
        row = self._change(
            lease,
            state=case((should_requeue, JobState.QUEUED.value), else_=JobState.PAUSED.value),
            lease_until_at=None,
            attempt=0,
            pause_requested_at=None,
            progress=progress_values(progress),
        )
        return job_of(row)

    def release(self, lease: Lease) -> None:
        self._connection.execute(update(jobs).where(_is_held(lease)).values(lease_until_at=DatabaseTime()))

    def _change(self, lease: Lease, **values: Any) -> Row[Any]:
        changed = (
            update(jobs).where(_is_held(lease)).values(updated_at=DatabaseTime(), **values).returning(jobs)
        )
        row = self._connection.execute(changed).first()
        if row is None:
            raise LeaseLost(lease.job_id, lease.epoch)
        return row


def _is_held(lease: Lease) -> ColumnElement[bool]:
    return and_(jobs.c.job_id == lease.job_id, jobs.c.epoch == lease.epoch, jobs.c.state == JobState.RUNNING)
