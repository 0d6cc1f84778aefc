"""Translates jobs to the JSON that lancedb's remote client reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import orjson
import pyarrow as pa

from tidemill.jobs.model.jobs import Failure, Job, JobEvent, JobKind
from tidemill.jobs.model.state import JobState
from tidemill.protocols.http.identifiers import DEFAULT_DELIMITER
from tidemill.protocols.http.responses import without_nulls

JOB_STATES: Final[Mapping[JobState, str]] = {
    JobState.QUEUED: "IN_PROGRESS",
    JobState.RUNNING: "IN_PROGRESS",
    JobState.PAUSED: "IN_PROGRESS",
    JobState.DONE: "DONE",
    JobState.FAILED: "FAILED",
    JobState.CANCELLED: "CANCELLED",
}
REFRESH_MODES: Final[Mapping[str, str]] = {"full": "rebuild"}
EVENT_SCHEMA: Final = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("data", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("updated_by", pa.string()),
        pa.field("emitted_from", pa.string(), nullable=False),
        pa.field("emitted_by", pa.string()),
        pa.field("claim_entity", pa.string()),
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
            "result": None if job.result is None else _result(job, job.result),
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


def event_rows(events: Sequence[JobEvent]) -> list[dict[str, Any]]:
    """Our own columns, then those that lancedb's client reads."""
    return [
        {
            "sequence": event.sequence,
            "at": event.at,
            "kind": event.kind,
            "data": orjson.dumps(event.data).decode(),
            "state": event.kind,
            "updated_by": event.data.get("by"),
            "emitted_from": "tidemill",
            "emitted_by": event.data.get("owner") or event.data.get("by"),
            "claim_entity": None,
        }
        for event in events
    ]


def events_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), EVENT_SCHEMA)


def _result(job: Job, result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with the fields that lancedb's client reads."""
    match job.kind:
        case JobKind.BACKFILL:
            # A job that succeeded has filled or skipped all its rows; a failed one has no result.
            counts = {
                "rows_assigned": job.progress.written,
                "rows_failed": job.progress.skipped,
                "rows_remaining": 0,
            }
            return without_nulls({**result, **counts})
        case JobKind.REFRESH:
            mode = result.get("mode")
            return {**result, "mode": REFRESH_MODES.get(str(mode), mode)}
        case JobKind.INDEX | JobKind.PREVIEW | JobKind.VERIFY:
            return dict(result)


def _failure(failure: Failure) -> dict[str, Any]:
    """Never retryable: a function that raised would raise again."""
    return {"phase": "execute", "message": failure.message, "retryable": False}


def _table(job: Job) -> str:
    return DEFAULT_DELIMITER.join(job.table.levels)


def _millis(at: datetime) -> int:
    return int(at.timestamp() * 1000)
