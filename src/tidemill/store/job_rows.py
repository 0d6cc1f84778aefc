"""Jobs to rows and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any, Final, TypeVar

from sqlalchemy import Row

from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.jobs.model.derived import RefreshPolicy
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
    RowSelection,
    VerifyRequest,
)
from tidemill.jobs.model.state import JobState
from tidemill.store.column_types import DatabaseTime
from tidemill.store.environments import environment_of
from tidemill.store.policies import error_policy_of

ValueT = TypeVar("ValueT", bound=JobRequest | Progress | Failure)

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
        request=_request(REQUESTS[kind], row.request),
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
        progress=_value(Progress, row.progress),
        result=row.result,
        failure=None if row.failure is None else _value(Failure, row.failure),
    )


def _request(kind: type[JobRequest], stored: Mapping[str, Any]) -> JobRequest:
    nested = {name: read(stored[name]) for name, read in NESTED.items() if stored.get(name) is not None}
    return _value(kind, {**stored, **nested})


def _value(kind: type[ValueT], stored: Mapping[str, Any]) -> ValueT:
    # A newer server may have written fields that this code does not know yet.
    known = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in stored.items() if name in known})


NESTED: Final[Mapping[str, Callable[[Any], object]]] = {
    "only": RowSelection,
    "environment": environment_of,
    "on_error": error_policy_of,
    "policy": RefreshPolicy,
}
"""Fields of requests that JSON alone does not bring back as they were."""
