"""`tidemill jobs …`: looking at jobs, pausing and stopping them."""

from __future__ import annotations

from typing import Annotated

import typer

from tidemill.cli.options import JsonOption, with_groups
from tidemill.cli.output import follow, print_event, print_job, print_jobs, print_json, print_line
from tidemill.cli.target import Target
from tidemill.jobs.model.jobs import JobKind, JobState
from tidemill.sdk.jobs import Job

jobs_app = typer.Typer(no_args_is_help=True, help="Look at jobs, pause them, stop them.")

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="At most so many.")]
TableOption = Annotated[str | None, typer.Option("--table", help="Those of this table or view.")]
KindOption = Annotated[JobKind | None, typer.Option("--kind", help="Those of this kind.")]
StateOption = Annotated[
    JobState | None, typer.Option("--state", case_sensitive=False, help="Those in this state.")
]
LogOption = Annotated[bool, typer.Option("--log", help="Print what happens to it, line by line.")]


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
        print_line("There are no such jobs" if is_filtered else "There are no jobs yet")


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
    """Wait for a job with a progress bar."""
    with target.open() as lake:
        job = lake.job(job_id)
        if log and not as_json:
            for _ in job.watch(print_event):
                pass
        follow(job, as_json=as_json)


@jobs_app.command("pause")
@with_groups
def pause_job(job_id: JobArgument, *, target: Target, as_json: JsonOption = False) -> None:
    """Ask a job to stop for a while."""
    with target.open() as lake:
        _say(lake.job(job_id).pause(), "it stops at its next safe point and can be resumed", as_json=as_json)


@jobs_app.command("resume")
@with_groups
def resume_job(job_id: JobArgument, *, target: Target, as_json: JsonOption = False) -> None:
    """Let a paused job go on."""
    with target.open() as lake:
        job = lake.job(job_id).resume()
        _say(job, f"watch it with 'tidemill jobs watch {job.id}'", as_json=as_json)


@jobs_app.command("cancel")
@with_groups
def cancel_job(job_id: JobArgument, *, target: Target, as_json: JsonOption = False) -> None:
    """Ask a job to stop."""
    with target.open() as lake:
        _say(lake.job(job_id).cancel(), "it stops at its next checkpoint", as_json=as_json)


def _say(job: Job, what_follows: str, *, as_json: bool) -> None:
    if as_json:
        print_json(job.to_dict())
    else:
        print_line(f"Job {job.id} is {job.state}; {what_follows}")
