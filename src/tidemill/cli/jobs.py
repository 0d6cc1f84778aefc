"""`tidemill jobs …`: looking at jobs, pausing and stopping them."""

from __future__ import annotations

from typing import Annotated

import typer

from tidemill.cli.options import JsonOption, Target, with_groups
from tidemill.cli.output import (
    follow,
    print_event,
    print_job,
    print_jobs,
    print_json,
    print_line,
    print_state,
)
from tidemill.jobs.model.jobs import JobKind, JobState

jobs_app = typer.Typer(no_args_is_help=True, help="Inspect, pause and cancel jobs.")

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="Maximum number of jobs.")]
TableOption = Annotated[str | None, typer.Option("--table", help="Only jobs of this table or view.")]
KindOption = Annotated[JobKind | None, typer.Option("--kind", help="Only jobs of this kind.")]
StateOption = Annotated[
    JobState | None, typer.Option("--state", case_sensitive=False, help="Only jobs in this state.")
]
LogOption = Annotated[bool, typer.Option("--log", help="Print each event of the job.")]


@jobs_app.command("list")
@with_groups
def list_jobs(
    *,
    table: TableOption = None,
    kind: KindOption = None,
    state: StateOption = None,
    limit: LimitOption = 20,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """List the latest jobs."""
    with target.open() as lake:
        jobs = lake.jobs(limit=limit, table=table, kind=kind, state=state)
    if as_json:
        print_json([job.to_dict() for job in jobs])
    elif jobs:
        print_jobs(jobs)
    else:
        is_filtered = any((table, kind, state))
        print_line("No jobs match" if is_filtered else "No jobs yet")


@jobs_app.command("show")
@with_groups
def show_job(job_id: JobArgument, *, target: Target, as_json: JsonOption = False) -> None:
    """Show a job, and why it failed if it did."""
    with target.open() as lake:
        job = lake.job(job_id)
        if as_json:
            print_json(job.to_dict())
        else:
            print_job(job)


@jobs_app.command("watch")
@with_groups
def watch_job(
    job_id: JobArgument, *, log: LogOption = False, target: Target, as_json: JsonOption = False
) -> None:
    """Wait for a job and show its progress."""
    with target.open() as lake:
        job = lake.job(job_id)
        if log and not as_json:
            for _ in job.watch(print_event):
                pass
        follow(job, as_json=as_json)


@jobs_app.command("pause")
@with_groups
def pause_job(job_id: JobArgument, *, target: Target, as_json: JsonOption = False) -> None:
    """Pause a job."""
    with target.open() as lake:
        print_state(
            lake.job(job_id).pause(), "it stops at its next safe point and can be resumed", as_json=as_json
        )


@jobs_app.command("resume")
@with_groups
def resume_job(job_id: JobArgument, *, target: Target, as_json: JsonOption = False) -> None:
    """Resume a paused job."""
    with target.open() as lake:
        job = lake.job(job_id).resume()
        print_state(job, f"watch it with 'tidemill jobs watch {job.id}'", as_json=as_json)


@jobs_app.command("cancel")
@with_groups
def cancel_job(job_id: JobArgument, *, target: Target, as_json: JsonOption = False) -> None:
    """Cancel a job."""
    with target.open() as lake:
        print_state(lake.job(job_id).cancel(), "it stops at its next checkpoint", as_json=as_json)
