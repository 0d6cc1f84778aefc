"""Jobs, functions and plans in the JSON of the management API."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from tidemill.catalog.model.functions import Function
from tidemill.jobs.model.jobs import Job, JobEvent
from tidemill.jobs.model.plans import BackfillPlan, RefreshPlan


def job_json(job: Job) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "kind": job.kind.value,
        "table": list(job.table.levels),
        "column": job.column,
        "state": job.state.value,
        "progress": asdict(job.progress),
        "created_at": _time(job.created_at),
        "started_at": _time(job.started_at),
        "finished_at": _time(job.finished_at),
        "cancel_requested": job.cancel_requested_at is not None,
        "submitted_by": job.submitted_by,
        "epoch": job.epoch,
        "result": job.result,
        "failure": None if job.failure is None else asdict(job.failure),
    }


def event_json(event: JobEvent) -> dict[str, Any]:
    return {"sequence": event.sequence, "at": _time(event.at), "kind": event.kind, "data": event.data}


def function_json(function: Function) -> dict[str, Any]:
    """Without its code, which is large and which nobody should run by accident."""
    return {
        "name": function.name,
        "digest": function.digest,
        "kind": function.kind.value,
        "parameters": list(function.parameters),
        "output": {field.name: str(field.type) for field in function.output},
        "python": function.python,
        "stateful": function.is_stateful,
    }


def backfill_plan_json(plan: BackfillPlan) -> dict[str, Any]:
    return {
        "read_version": plan.read_version,
        "rows": plan.rows,
        "rows_reused": plan.rows_reused,
        "fragments": sum(len(group) for group in plan.groups),
        "commits": len(plan.groups),
        "reason": plan.reason,
    }


def refresh_plan_json(plan: RefreshPlan) -> dict[str, Any]:
    return {
        "mode": _mode(plan),
        "source_version": plan.source_version,
        "rows": plan.rows,
        "rows_replaced": plan.rows_replaced,
        "rows_removed": plan.rows_removed,
        "rows_reused": plan.rows_reused,
        "reason": plan.reason,
    }


def _mode(plan: RefreshPlan) -> str:
    if plan.is_empty:
        return "no_op"
    return "full" if plan.is_full else "incremental"


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")
