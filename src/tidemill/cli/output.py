"""What commands print: tables and sentences for people, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tidemill.jobs.model.state import JobState
from tidemill.sdk.jobs import Job
from tidemill.sdk.progress import note

STATE_STYLES = {
    JobState.QUEUED: "dim",
    JobState.RUNNING: "cyan",
    JobState.PAUSED: "magenta",
    JobState.DONE: "green",
    JobState.FAILED: "red",
    JobState.CANCELLED: "yellow",
}


def console() -> Console:
    return Console(highlight=False)


def print_json(value: Any) -> None:
    console().print(json.dumps(value, indent=2, default=str), markup=False, soft_wrap=True)


def print_line(text: str) -> None:
    console().print(text, markup=False, soft_wrap=True)


def print_jobs(jobs: Iterable[Job]) -> None:
    table = Table(box=None, header_style="bold")
    # An id is there to be copied.
    table.add_column("Job", no_wrap=True, min_width=36)
    for heading in ("What", "State", "Rows", "Created"):
        table.add_column(heading)
    for job in jobs:
        state = f"[{STATE_STYLES[job.state]}]{job.state}[/]"
        rows = f"{job.progress.done:,} of {job.progress.total:,}"
        table.add_row(job.id, escape(job.description), state, rows, _local(job.created_at))
    console().print(table)


def print_job(job: Job) -> None:
    table = Table(show_header=False, box=None)
    table.add_row("Job", job.id)
    table.add_row("What", escape(job.description))
    table.add_row("State", f"[{STATE_STYLES[job.state]}]{job.state}[/]")
    table.add_row(
        "Rows", f"{job.progress.done:,} of {job.progress.total:,} ({note(job.state, job.progress)})"
    )
    table.add_row("Created", _local(job.created_at))
    table.add_row("Started", _local(job.started_at))
    table.add_row("Finished", _local(job.finished_at))
    if job.failure is not None:
        table.add_row("Failure", escape(job.failure.message))
    console().print(table)
    if job.failure is not None and job.failure.traceback:
        print_line(job.failure.traceback.rstrip())


def print_ended(job: Job) -> None:
    print_line(f"Job {job.id} {note(job.state, job.progress)}")


def _local(at: datetime | None) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if at else "-"
