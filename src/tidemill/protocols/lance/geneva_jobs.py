"""Geneva's table of jobs, generated from our jobs whenever it is queried."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
import pyarrow as pa

from tidemill.catalog.errors import NamespaceNotFound, TableHasNoData, TableNotFound
from tidemill.catalog.model.identifiers import SYSTEM_NAMESPACE, TableIdent
from tidemill.jobs.errors import JobNotFound
from tidemill.jobs.model.jobs import Job, JobKind, JobState
from tidemill.protocols.http.call import Call

JOBS_TABLE: Final = TableIdent(SYSTEM_NAMESPACE, "geneva_jobs")
MAX_JOBS: Final = 10_000
CLIENT_ROW_GRACE: Final = timedelta(seconds=5)
SINGLE_JOB_CONDITION: Final = re.compile(r"\s*`?job_id`?\s*=\s*'([^']+)'\s*", re.IGNORECASE)
STATUSES: Final[Mapping[JobState, str]] = {
    JobState.QUEUED: "PENDING",
    JobState.RUNNING: "RUNNING",
    JobState.PAUSED: "PENDING",
    JobState.DONE: "DONE",
    JobState.FAILED: "FAILED",
    JobState.CANCELLED: "CANCELLED",
}
JOB_TYPES: Final[Mapping[JobKind, str]] = {JobKind.BACKFILL: "BACKFILL", JobKind.REFRESH: "REFRESH"}
TIME: Final = pa.timestamp("us", "UTC")
TEXTS: Final = pa.list_(pa.string())
SCHEMA: Final = pa.schema(
    [
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("column_name", pa.string(), nullable=False),
        pa.field("job_id", pa.string(), nullable=False),
        pa.field("job_type", pa.string(), nullable=False),
        pa.field("object_ref", pa.string()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("launched_at", TIME, nullable=False),
        pa.field("completed_at", TIME),
        pa.field("config", pa.string(), nullable=False),
        pa.field("launched_by", pa.string()),
        pa.field("manifest_id", pa.string()),
        pa.field("manifest_checksum", pa.string()),
        pa.field("metrics", TEXTS),
        pa.field("events", TEXTS),
        pa.field("updated_at", TIME),
        pa.field("cluster_name", pa.string()),
        pa.field("input_columns", TEXTS),
        pa.field("output_columns", TEXTS),
    ]
)


def job_rows(call: Call, condition: str | None) -> pa.Table:
    """The rows for a query on the table of jobs. The client polls a single job by its id."""
    single_job = SINGLE_JOB_CONDITION.fullmatch(condition or "")
    rows = [_row(call, job) for job in _jobs(call, single_job[1] if single_job else None)]
    return pa.Table.from_pylist(rows, SCHEMA)


def _jobs(call: Call, job_id: str | None) -> Sequence[Job]:
    """Excludes previews: Geneva has no such jobs, because its client computes previews itself."""
    if job_id is None:
        listed = call.operations.jobs.list_recent(call.caller, None, MAX_JOBS)
        return [job for job in listed if job.kind is not JobKind.PREVIEW]
    try:
        job = call.operations.jobs.get(call.caller, job_id)
    except JobNotFound:
        return []
    return [] if _awaits_client_row(call, job) else [job]


def _awaits_client_row(call: Call, job: Job) -> bool:
    """Whether the client that started the job has not written its own row yet.

    It looks for a row first. If it found ours, it would update that one instead of adding its own, with an
    expression that its Lance cannot parse if the function has no named inputs.
    """
    if datetime.now(UTC) - job.created_at > CLIENT_ROW_GRACE:
        return False
    try:
        condition = f"job_id = '{job.job_id}'"
        count, _ = call.operations.rows.count_rows(call.caller, JOBS_TABLE, condition, None)
    except (NamespaceNotFound, TableNotFound, TableHasNoData):
        return True
    return count == 0


def _row(call: Call, job: Job) -> dict[str, Any]:
    return {
        "table_name": job.table.name,
        "column_name": job.column or "",
        "job_id": job.job_id,
        "job_type": JOB_TYPES.get(job.kind, job.kind.value.upper()),
        "status": STATUSES[job.state],
        "launched_at": job.created_at,
        "completed_at": job.finished_at,
        "config": "{}",
        "launched_by": job.submitted_by,
        "metrics": _metrics(job),
        "events": _events(call, job),
        "updated_at": job.updated_at or job.created_at,
        "cluster_name": job.cluster,
        "input_columns": [],
        "output_columns": [] if job.column is None else [job.column],
    }


def _metrics(job: Job) -> list[str]:
    progress, is_over = job.progress, job.state.is_final
    counts = {
        "rows_checkpointed": (progress.computed + progress.reused, progress.total),
        "rows_ready_for_commit": (progress.written, progress.total),
        "rows_skipped": (progress.skipped, progress.total),
    }
    return [
        orjson.dumps({"name": name, "n": n, "total": total, "done": is_over, "desc": name}).decode()
        for name, (n, total) in counts.items()
    ]


def _events(call: Call, job: Job) -> list[str]:
    """The kinds of the job's events. The client shows the last entry as the reason of a failure."""
    kinds = [event.kind for event in call.operations.jobs.events(call.caller, job.job_id, 0)]
    return kinds if job.failure is None else [*kinds, job.failure.message]
