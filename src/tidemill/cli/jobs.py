"""`tidemill jobs …`, `tidemill backfill` and `tidemill refresh`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tidemill.cli.output import print_ended, print_job, print_jobs, print_json, print_line
from tidemill.cli.target import ROOT, JsonOption, KeyOption, RootOption, UrlOption, open_lake
from tidemill.sdk.errors import JobCancelled, JobFailed
from tidemill.sdk.jobs import Job

jobs_app = typer.Typer(no_args_is_help=True, help="Look at jobs and stop them.")

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="For instance library.docs.")]
ColumnArgument = Annotated[str, typer.Argument(metavar="COLUMN", help="A computed column.")]
ViewArgument = Annotated[str, typer.Argument(metavar="VIEW", help="For instance library.passages.")]
WhereOption = Annotated[str | None, typer.Option("--where", help="SQL condition: exactly these rows.")]
FullOption = Annotated[bool, typer.Option("--full", help="Compute every row again.")]
NoWaitOption = Annotated[bool, typer.Option("--no-wait", help="Start the job and return.")]
ConcurrencyOption = Annotated[int | None, typer.Option("--concurrency", help="Tasks at a time.")]


@jobs_app.command("list")
def list_jobs(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 20,
    url: UrlOption = None,
    root: RootOption = ROOT,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the latest jobs."""
    with open_lake(url, root, api_key) as lake:
        jobs = lake.jobs(limit=limit)
    if as_json:
        print_json([job.to_dict() for job in jobs])
    elif jobs:
        print_jobs(jobs)
    else:
        print_line("There are no jobs yet")


@jobs_app.command("show")
def show_job(
    job_id: JobArgument,
    *,
    url: UrlOption = None,
    root: RootOption = ROOT,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a job, and why it failed if it did."""
    with open_lake(url, root, api_key) as lake:
        job = lake.job(job_id)
        if as_json:
            print_json(job.to_dict())
        else:
            print_job(job)


@jobs_app.command("watch")
def watch_job(
    job_id: JobArgument,
    *,
    url: UrlOption = None,
    root: RootOption = ROOT,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Wait for a job with a progress bar."""
    with open_lake(url, root, api_key) as lake:
        follow(lake.job(job_id), as_json=as_json)


@jobs_app.command("cancel")
def cancel_job(
    job_id: JobArgument,
    *,
    url: UrlOption = None,
    root: RootOption = ROOT,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a job to stop."""
    with open_lake(url, root, api_key) as lake:
        job = lake.job(job_id).cancel()
        if as_json:
            print_json(job.to_dict())
        else:
            print_line(f"Job {job.id} is {job.state}; it stops at its next checkpoint")


def backfill(
    table: TableArgument,
    column: ColumnArgument,
    *,
    where: WhereOption = None,
    concurrency: ConcurrencyOption = None,
    num_frags: Annotated[
        int | None, typer.Option("--num-frags", help="Stop after so many fragments.")
    ] = None,
    no_wait: NoWaitOption = False,
    url: UrlOption = None,
    root: RootOption = ROOT,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fill a computed column where it is missing or out of date."""
    with open_lake(url, root, api_key) as lake:
        job = lake.table(table).backfill(column, where=where, concurrency=concurrency, num_frags=num_frags)
        _report(job, is_waiting=not no_wait, as_json=as_json)


def refresh(
    view: ViewArgument,
    *,
    full: FullOption = False,
    concurrency: ConcurrencyOption = None,
    no_wait: NoWaitOption = False,
    url: UrlOption = None,
    root: RootOption = ROOT,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a materialized view up to date."""
    with open_lake(url, root, api_key) as lake:
        job = lake.view(view).refresh(full=full, concurrency=concurrency)
        _report(job, is_waiting=not no_wait, as_json=as_json)


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


def _report(job: Job, *, is_waiting: bool, as_json: bool) -> None:
    if is_waiting:
        follow(job, as_json=as_json)
    elif as_json:
        print_json(job.to_dict())
    else:
        print_line(f"Job {job.id} is {job.state}; watch it with 'tidemill jobs watch {job.id}'")
