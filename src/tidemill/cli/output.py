"""What commands print: tables and sentences for people, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from tidemill.jobs.model.jobs import JobState
from tidemill.sdk.errors import JobCancelled, JobFailed
from tidemill.sdk.explain import counted, duration_text
from tidemill.sdk.jobs import Job, JobEvent, Preview, Verification, note, shortened
from tidemill.sdk.names import dotted
from tidemill.sdk.status import ColumnStatus, Lineage, LineageStep, RowErrorInfo

STATE_STYLES: Final = {
    JobState.QUEUED: "dim",
    JobState.RUNNING: "cyan",
    JobState.PAUSED: "magenta",
    JobState.DONE: "green",
    JobState.FAILED: "red",
    JobState.CANCELLED: "yellow",
}
SKIPPED_STYLE: Final = "yellow"


def console() -> Console:
    return Console(highlight=False)


def print_json(value: Any) -> None:
    console().print(json.dumps(value, indent=2, default=str), markup=False, soft_wrap=True)


def print_line(text: str) -> None:
    console().print(text, markup=False, soft_wrap=True)


def print_result(value: Any, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        print_line(text)


def local_time(at: datetime | None) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if at else "-"


def print_preview(preview: Preview) -> None:
    table = Table(box=None, header_style="bold")
    for name in preview.rows.column_names:
        table.add_column(escape(name))
    for row in preview.rows.to_pylist():
        table.add_row(*(escape(shortened(value)) for value in row.values()))
    print_line(preview.summary)
    console().print(table)
    for error in preview.errors:
        print_line(f"! {error}")


def preview_json(preview: Preview) -> dict[str, Any]:
    return {
        "table": preview.table,
        "column": preview.column,
        "job_id": preview.job_id,
        "source_version": preview.source_version,
        "rows_per_second": preview.rows_per_second,
        "reused": preview.reused,
        "truncated": preview.is_truncated,
        "rows": preview.rows.to_pylist(),
        "errors": [asdict(error) for error in preview.errors],
    }


def print_status(status: ColumnStatus) -> None:
    print_line(str(status))
    if not status.functions:
        return
    table = Table("Function", "Rows", "Current", "Digest", box=None, header_style="bold")
    for function in status.functions:
        current = "yes" if function.is_current else "kept" if function.is_kept else "no"
        table.add_row(escape(function.name), f"{function.rows:,}", current, function.digest)
    console().print(table)


def print_errors(errors: Iterable[RowErrorInfo], *, with_tracebacks: bool) -> None:
    for error in errors:
        outcome = "skipped" if error.is_skipped else "ended the job"
        print_line(f"{local_time(error.at)} {error}; {outcome} (job {error.job_id})")
        if with_tracebacks and error.traceback:
            print_line(error.traceback.rstrip())


def print_verification(found: Verification) -> None:
    print_line(str(found))
    if not found.differences:
        return
    table = Table("What", "Key", "Columns", "Expected", "Found", box=None, header_style="bold")
    for difference in found.differences:
        values = (difference.expected, difference.found)
        table.add_row(
            difference.kind,
            escape(shortened(difference.key)),
            escape(", ".join(difference.columns)),
            *("" if value is None else escape(shortened(value)) for value in values),
        )
    console().print(table)


def print_lineage(lineage: Lineage) -> None:
    column = f".{lineage.column}" if lineage.column else ""
    tree = Tree(escape(f"{lineage.object}{column} ({lineage.kind})"))
    _grow(tree, ("made from", "which are made from"), lineage.upstream)
    _grow(tree, ("used by", "which are used by"), lineage.downstream)
    console().print(tree)
    if not lineage.upstream and not lineage.downstream:
        print_line("Nothing upstream, nothing downstream")


def _grow(tree: Tree, labels: tuple[str, str], steps: Sequence[LineageStep]) -> None:
    """One branch for each distance, inside the one before it."""
    branch, (label, next_label) = tree, labels
    for _, found in groupby(steps, lambda step: step.depth):
        branch = branch.add(f"[dim]{label}[/]")
        label = next_label
        for step in found:
            branch.add(escape(str(step)))


def follow(job: Job, *, as_json: bool) -> None:
    """Waits for the job and prints how it ended, also when it ended badly."""
    try:
        job.wait(progress=not as_json and sys.stderr.isatty())
    except (JobFailed, JobCancelled):
        if as_json:
            print_json(job.to_dict())
        raise
    if as_json:
        print_json(job.to_dict())
    else:
        print_ended(job)


def report(job: Job, *, is_waiting: bool, as_json: bool) -> None:
    """Waits for a job that was started, or says how to."""
    if is_waiting:
        follow(job, as_json=as_json)
    else:
        print_state(job, f"watch it with 'tidemill jobs watch {job.id}'", as_json=as_json)


def print_state(job: Job, advice: str, *, as_json: bool) -> None:
    print_result(job.to_dict(), f"Job {job.id} is {job.state}; {advice}", as_json=as_json)


def print_ended(job: Job) -> None:
    print_line(f"Job {job.id} {note(job.state, job.progress)}")
    print_rows_left(job)
    if has_skipped(job):
        print_line(f"{outcome(job)}; {advice(job)}")


def print_rows_left(job: Job) -> None:
    if job.rows_left:
        print_line(f"{job.rows_left:,} rows still need work: run the backfill again")


def print_jobs(jobs: Sequence[Job]) -> None:
    table = Table(box=None, header_style="bold")
    # An id is there to be copied.
    table.add_column("Job", no_wrap=True, min_width=36)
    for heading in ("What", "State", "Rows", "Created"):
        table.add_column(heading)
    for job in jobs:
        rows = f"{job.progress.done:,} of {job.progress.total:,}"
        table.add_row(job.id, escape(job.description), _styled(job), rows, local_time(job.created_at))
    console().print(table)
    if any(map(has_skipped, jobs)):
        print_line("Skipped rows are null; see 'tidemill errors TABLE --job JOB'")


def print_job(job: Job) -> None:
    table = Table(show_header=False, box=None)
    for label, value in _details(job):
        table.add_row(label, value)
    console().print(table)
    print_rows_left(job)
    if has_skipped(job):
        print_line(f"{outcome(job)}; {advice(job)}")
    if job.failure is not None and job.failure.traceback:
        print_line(job.failure.traceback.rstrip())


def print_event(event: JobEvent) -> None:
    data = f" {json.dumps(dict(event.data), default=str)}" if event.data else ""
    print_line(f"{local_time(event.at)} {event.kind}{data}")


def has_skipped(job: Job) -> bool:
    return job.state is JobState.DONE and job.progress.skipped > 0


def outcome(job: Job) -> str:
    """The state, and whether there are rows that a job which went well left out."""
    skipped = f", {counted(job.progress.skipped, 'row')} skipped" if has_skipped(job) else ""
    return f"{job.state}{skipped}"


def advice(job: Job) -> str:
    column = f" {job.column}" if job.column else ""
    branch = f" --branch {job.branch}" if job.branch and job.branch != "main" else ""
    return f"see 'tidemill errors {dotted(job.table)}{column} --job {job.id}{branch}'"


def _details(job: Job) -> list[tuple[str, str]]:
    progress = job.progress
    speed = None if job.rows_per_second is None else f"{job.rows_per_second:,.4g} rows/s"
    left = None if job.eta is None or job.state.is_final else f"{duration_text(job.eta.total_seconds())} left"
    found = {
        "Job": job.id,
        "What": escape(job.description),
        "Branch": escape(job.branch or ""),
        "Cluster": escape(job.cluster or ""),
        "State": _styled(job),
        "Rows": f"{progress.done:,} of {progress.total:,} ({note(job.state, progress)})",
        "Speed": ", ".join(filter(None, (speed, left))),
        "Created": local_time(job.created_at),
        "Started": local_time(job.started_at),
        "Finished": local_time(job.finished_at),
        "Failure": escape(job.failure.message) if job.failure is not None else "",
    }
    return [(label, value) for label, value in found.items() if value]


def _styled(job: Job) -> str:
    style = SKIPPED_STYLE if has_skipped(job) else STATE_STYLES[job.state]
    return f"[{style}]{outcome(job)}[/]"
