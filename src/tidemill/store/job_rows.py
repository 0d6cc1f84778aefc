"""Jobs to rows and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import Row

from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.jobs.model.jobs import (
    BackfillRequest,
    Failure,
    IndexRequest,
    Job,
    JobKind,
    JobRequest,
    PreviewRequest,
    Progress,
    RefreshRequest,
    VerifyRequest,
)
from tidemill.jobs.model.state import JobState
from tidemill.store.column_types import DatabaseTime
from tidemill.store.values import value_of

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
