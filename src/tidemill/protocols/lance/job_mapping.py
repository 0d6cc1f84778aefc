"""Jobs in the shape that lancedb's remote client reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import orjson
import pyarrow as pa

from tidemill.jobs.model.jobs import Failure, Job, JobEvent
from tidemill.jobs.model.state import JobState
from tidemill.protocols.http.identifiers import DEFAULT_DELIMITER
from tidemill.protocols.http.responses import without_nulls

JOB_STATES: Final[Mapping[JobState, str]] = {
    JobState.QUEUED: "IN_PROGRESS",
    JobState.RUNNING: "IN_PROGRESS",
    JobState.DONE: "DONE",
    JobState.FAILED: "FAILED",
    JobState.CANCELLED: "CANCELLED",
}
EVENT_SCHEMA: Final = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("data", pa.string(), nullable=False),
    ]
)


def job_json(job: Job) -> dict[str, Any]:
    return without_nulls(
        {
            "job_id": job.job_id,
            "job_type": job.kind.value,
            "job_state": JOB_STATES[job.state],
            "creation_ms": _millis(job.created_at),
            "spec": without_nulls({"table": _table(job), "column": job.column}),
            "result": job.result,
            "failure": None if job.failure is None else _failure(job.failure),
        }
    )


def job_summary(job: Job) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "table": _table(job),
        "job_type": job.kind.value,
        "state": JOB_STATES[job.state],
        "created_at_millis": _millis(job.created_at),
    }


def events_table(events: Sequence[JobEvent]) -> pa.Table:
    rows = [
        {
            "sequence": event.sequence,
            "at": event.at,
            "kind": event.kind,
            "data": orjson.dumps(event.data).decode(),
        }
        for event in events
    ]
    return pa.Table.from_pylist(rows, EVENT_SCHEMA)


def _failure(failure: Failure) -> dict[str, Any]:
    """A function that raised would raise again; nothing here is worth trying a second time unchanged."""
    return {"phase": "execute", "message": failure.message, "retryable": False}


def _table(job: Job) -> str:
    return DEFAULT_DELIMITER.join(job.table.levels)


def _millis(at: datetime) -> int:
    return int(at.timestamp() * 1000)
