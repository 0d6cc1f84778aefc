"""Jobs as rows: submitting, listing and signalling them; leases, events, and the heartbeats of workers.

Leases expire by the database clock and are fenced by an epoch. A worker claims the oldest queued job, or one
whose lease has expired, and renews the lease while it works. Every claim increments the epoch, and every
write under a lease checks it. A worker that was suspended past its lease therefore gets LeaseLost instead of
overwriting the results of its successor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Text,
    and_,
    bindparam,
    case,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.auditing import note_job
from tidemill.catalog.errors import ConcurrentModification
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.jobs.errors import InvalidJobTransition, JobAlreadyActive, JobNotFound, LeaseLost
from tidemill.jobs.model.jobs import (
    ACTIVE_STATES,
    ANY_JOB,
    DEFAULT_CLUSTER,
    Failure,
    Job,
    JobEvent,
    JobFilter,
    JobKind,
    JobRevision,
    JobState,
    Lease,
    Progress,
    check_transition,
)
from tidemill.jobs.model.options import (
    BackfillRequest,
    IndexRequest,
    JobRequest,
    PreviewRequest,
    RefreshRequest,
    VerifyRequest,
)
from tidemill.store.bookkeeping import next_number
from tidemill.store.column_types import DatabaseTime, in_milliseconds, value_of
from tidemill.store.compiled_statements import CompiledStatement
from tidemill.store.schema import job_events, jobs, workers


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
        note_job(job.job_id)

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
        note_job(job_id)
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


REQUESTS: Final[Mapping[JobKind, type[JobRequest]]] = {
    JobKind.BACKFILL: BackfillRequest,
    JobKind.REFRESH: RefreshRequest,
    JobKind.INDEX: IndexRequest,
    JobKind.PREVIEW: PreviewRequest,
    JobKind.VERIFY: VerifyRequest,
}


def job_values(job: Job) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "kind": job.kind,
        "table_id": job.table_id,
        "table_levels": list(job.table.levels),
        "subject_id": job.subject_id,
        "request": asdict(job.request),
        "submitted_by": job.submitted_by,
        "idempotency_key": job.idempotency_key,
        "cluster": job.cluster,
        "epoch": job.epoch,
        "attempt": job.attempt,
        "owner": job.owner,
        "lease_until_at": job.lease_until_at,
        "cancel_requested_at": job.cancel_requested_at,
        "pause_requested_at": job.pause_requested_at,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "updated_at": job.updated_at or DatabaseTime(),
        "event_count": 0,
        "part_count": 0,
        **outcome_values(job),
    }


def outcome_values(job: Job) -> dict[str, Any]:
    return {
        "state": job.state,
        "progress": progress_values(job.progress),
        "result": job.result,
        "failure": None if job.failure is None else asdict(job.failure),
    }


def progress_values(progress: Progress) -> dict[str, int]:
    return asdict(progress)


def job_of(row: Row[Any]) -> Job:
    kind = JobKind(row.kind)
    *namespace, name = row.table_levels
    return Job(
        job_id=row.job_id,
        kind=kind,
        table_id=row.table_id,
        table=TableIdent(NamespacePath(tuple(namespace)), name),
        subject_id=row.subject_id,
        request=value_of(REQUESTS[kind], row.request),
        state=JobState(row.state),
        submitted_by=row.submitted_by,
        created_at=row.created_at,
        idempotency_key=row.idempotency_key,
        cluster=row.cluster,
        epoch=row.epoch,
        attempt=row.attempt,
        owner=row.owner,
        lease_until_at=row.lease_until_at,
        cancel_requested_at=row.cancel_requested_at,
        pause_requested_at=row.pause_requested_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        updated_at=row.updated_at,
        progress=value_of(Progress, row.progress),
        result=row.result,
        failure=None if row.failure is None else value_of(Failure, row.failure),
    )


ADD_EVENT: Final = CompiledStatement(
    insert(job_events).values(at=DatabaseTime()), columns=("job_id", "sequence", "kind", "data")
)


class SqlJobEvents:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(self, job_id: str, kind: str, data: dict[str, object]) -> None:
        sequence = next_number(self._connection, job_id, jobs.c.event_count)
        values = {"job_id": job_id, "sequence": sequence, "kind": kind, "data": data}
        ADD_EVENT.execute(self._connection, values)

    def list_after(self, job_id: str, sequence: int) -> Sequence[JobEvent]:
        query = (
            select(job_events)
            .where(job_events.c.job_id == job_id, job_events.c.sequence > sequence)
            .order_by(job_events.c.sequence)
        )
        return [
            JobEvent(row.job_id, row.sequence, row.at, row.kind, row.data)
            for row in self._connection.execute(query)
        ]

    def revisions(self, job_ids: Collection[str]) -> Mapping[str, JobRevision]:
        query = select(jobs.c.job_id, jobs.c.state, jobs.c.event_count, jobs.c.updated_at)
        found = self._connection.execute(query.where(jobs.c.job_id.in_(job_ids)))
        return {
            row.job_id: JobRevision(JobState(row.state), row.event_count, row.updated_at) for row in found
        }


class SqlWorkerRegistry:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def beat(self, owner: str) -> None:
        heartbeat = update(workers).where(workers.c.owner == owner).values(last_seen_at=DatabaseTime())
        if self._connection.execute(heartbeat).rowcount:
            return
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(workers).values(owner=owner, last_seen_at=DatabaseTime()))
        except IntegrityError:
            # Two first heartbeats arrived at once; either will do.
            return

    def last_seen_at(self) -> datetime | None:
        seen: datetime | None = self._connection.scalar(select(func.max(workers.c.last_seen_at)))
        return seen


FIND_HELD: Final = CompiledStatement(
    select(jobs.c.job_id)
    .where(
        jobs.c.job_id == bindparam("job", type_=Text),
        jobs.c.epoch == bindparam("held_epoch", type_=BigInteger),
        jobs.c.state == JobState.RUNNING.value,
    )
    .with_for_update()
)


@cache
def _claim_statement() -> CompiledStatement:
    has_expired = and_(jobs.c.state == JobState.RUNNING.value, jobs.c.lease_until_at <= DatabaseTime())
    oldest = (
        select(jobs.c.job_id)
        .where(
            jobs.c.cluster == bindparam("where", type_=Text),
            or_(jobs.c.state == JobState.QUEUED.value, has_expired),
        )
        .order_by(jobs.c.created_at, jobs.c.job_id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    return CompiledStatement(
        update(jobs)
        .where(jobs.c.job_id == oldest)
        .values(
            state=JobState.RUNNING.value,
            epoch=jobs.c.epoch + 1,
            attempt=jobs.c.attempt + 1,
            owner=bindparam("new_owner", type_=Text),
            lease_until_at=DatabaseTime() + bindparam("duration", type_=BigInteger),
            started_at=func.coalesce(jobs.c.started_at, DatabaseTime()),
            updated_at=DatabaseTime(),
        )
        .returning(jobs)
    )


class SqlJobLeases:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def claim(self, owner: str, duration: timedelta, cluster: str = DEFAULT_CLUSTER) -> Job | None:
        values = {"new_owner": owner, "duration": in_milliseconds(duration), "where": cluster}
        rows = _claim_statement().all(self._connection, values)
        return job_of(rows[0]) if rows else None

    def renew(self, lease: Lease, duration: timedelta) -> Job:
        return job_of(self._change(lease, lease_until_at=DatabaseTime() + in_milliseconds(duration)))

    def check(self, lease: Lease) -> None:
        values = {"job": lease.job_id, "held_epoch": lease.epoch}
        if FIND_HELD.first(self._connection, values) is None:
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
