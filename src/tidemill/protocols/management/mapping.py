"""Translates jobs, functions, plans and views to the JSON of the management API, and its pages."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Final

from tidemill.catalog.model.functions import Environment, Function, RegisteredFunction
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.errors import InvalidInput
from tidemill.jobs.model.columns import ColumnStatus
from tidemill.jobs.model.failures import RowError
from tidemill.jobs.model.jobs import Job, JobEvent, JobState
from tidemill.jobs.model.lineage import LineageEntry, ObjectLineage
from tidemill.jobs.model.plans import BackfillExplanation, RefreshExplanation
from tidemill.jobs.service.status import LastRefresh, SourceStatus, ViewStatus
from tidemill.protocols.http.call import Call, without_nulls
from tidemill.protocols.http.fields import query_integer

PREVIEWED_ROWS: Final = "arrow"


def job_json(job: Job) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "kind": job.kind.value,
        "table": list(job.table.levels),
        "column": job.column,
        "state": job.state.value,
        "progress": asdict(job.progress),
        "created_at": time_text(job.created_at),
        "started_at": time_text(job.started_at),
        "finished_at": time_text(job.finished_at),
        "cancel_requested": job.cancel_requested_at is not None,
        "pause_requested": job.pause_requested_at is not None,
        "branch": getattr(job.request, "branch", None) or MAIN_BRANCH,
        "cluster": job.cluster,
        **_pace(job),
        "submitted_by": job.submitted_by,
        "epoch": job.epoch,
        "result": job.result,
        "failure": None if job.failure is None else asdict(job.failure),
    }


def _pace(job: Job) -> dict[str, float | None]:
    """Speed and estimated time left, judged by this run."""
    last = job.finished_at or job.updated_at
    if job.started_at is None or last is None or not job.progress.done:
        return {"rows_per_second": None, "eta_seconds": None}
    seconds = max((last - job.started_at).total_seconds(), 0.001)
    pace = job.progress.done / seconds
    remaining_seconds = max(job.progress.total - job.progress.done, 0) / pace
    is_running = job.state is JobState.RUNNING
    return {
        "rows_per_second": round(pace, 3),
        "eta_seconds": round(remaining_seconds, 3) if is_running else None,
    }


def listed_job_json(job: Job) -> dict[str, Any]:
    """Omits the rows of a preview, which are large; `job_json` has them."""
    result = {key: value for key, value in (job.result or {}).items() if key != PREVIEWED_ROWS}
    return job_json(replace(job, result=None if job.result is None else result))


def event_json(event: JobEvent) -> dict[str, Any]:
    return {"sequence": event.sequence, "at": time_text(event.at), "kind": event.kind, "data": event.data}


def registered_json(registered: RegisteredFunction) -> dict[str, Any]:
    return {
        **function_json(registered.function, registered.namespace or NamespacePath()),
        "version": registered.version,
        "owner": registered.registered_by,
    }


def function_json(function: Function, namespace: NamespacePath) -> dict[str, Any]:
    """Omits the code, which is large and must not be run by accident."""
    return {
        "name": function.name,
        "namespace": list(namespace.levels),
        "digest": function.digest,
        "kind": function.kind.value,
        "parameters": list(function.parameters),
        "output": {field.name: str(field.type) for field in function.output},
        "python": function.python,
        "stateful": function.is_stateful,
    }


def explanation_json(explained: BackfillExplanation | RefreshExplanation) -> dict[str, Any]:
    return {
        **explained.plan.summary(),
        "expected_seconds": explained.expected_seconds,
        "conflicts": list(explained.conflicts),
    }


def status_json(status: ColumnStatus) -> dict[str, Any]:
    return without_nulls(asdict(status))


def row_error_json(column: str | None, error: RowError) -> dict[str, Any]:
    failure = error.failure
    return {
        "column": column,
        "row_id": failure.row_id,
        "digest": error.digest,
        "job_id": error.job_id,
        "exception": failure.exception,
        "message": failure.message,
        "traceback": failure.traceback,
        "attempts": failure.attempts,
        "skipped": error.is_skipped,
        "at": time_text(error.at),
    }


def environment_json(name: str, environment: Environment) -> dict[str, Any]:
    """Shows only the names of variables, because their values may be secrets."""
    return {"name": name, "pip": list(environment.packages), "env_vars": sorted(environment.variables)}


def view_status_json(status: ViewStatus) -> dict[str, Any]:
    return {
        "view": list(status.view),
        "kind": status.kind.value,
        "policy": status.policy.value,
        "auto_refresh": status.has_auto_refresh,
        "version": status.version,
        "is_fresh": status.is_fresh,
        "reason": status.reason,
        "owner": status.owner,
        "sources": [_source_json(source) for source in status.sources],
        "last_refresh": None if status.last_refresh is None else _last_refresh_json(status.last_refresh),
    }


def _source_json(source: SourceStatus) -> dict[str, Any]:
    return {
        "source": list(source.source),
        "version_consumed": source.version_consumed,
        "latest_version": source.latest_version,
        "versions_behind": source.versions_behind,
        "inserted": source.inserted,
        "updated": source.updated,
        "deleted": source.deleted,
    }


def _last_refresh_json(last: LastRefresh) -> dict[str, Any]:
    return {
        "job_id": last.job_id,
        "state": last.state.value,
        "finished_at": time_text(last.finished_at),
        "mode": last.mode,
    }


def lineage_json(lineage: ObjectLineage) -> dict[str, Any]:
    return {
        "object": list(lineage.levels),
        "kind": lineage.kind.value,
        "column": lineage.column,
        "upstream": [_lineage_entry_json(entry) for entry in lineage.upstream],
        "downstream": [_lineage_entry_json(entry) for entry in lineage.downstream],
    }


def _lineage_entry_json(entry: LineageEntry) -> dict[str, Any]:
    return {
        "object": list(entry.levels),
        "kind": entry.kind.value,
        "column": entry.column,
        "through": entry.through.value,
        "function": None if entry.function is None else asdict(entry.function),
        "depth": entry.depth,
    }


def time_text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


DEFAULT_PAGE: Final = 100
MAX_PAGE: Final = 1000


def page_limit(call: Call, default: int = DEFAULT_PAGE, maximum: int = MAX_PAGE) -> int:
    limit = query_integer(call.query, "limit")
    if limit is None:
        return default
    if not 1 <= limit <= maximum:
        raise InvalidInput("limit", f"must be between 1 and {maximum}")
    return limit


def row_token(call: Call) -> int | None:
    """The last row id of the previous page."""
    row_id = query_integer(call.query, "page_token")
    if row_id is not None and row_id < 0:
        raise InvalidInput("page_token", f"must be the page_token of a previous page, not {row_id}")
    return row_id
