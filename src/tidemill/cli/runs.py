"""`tidemill backfill`, `tidemill refresh` and `tidemill preview`: the commands that start jobs."""

from __future__ import annotations

from tidemill.cli.job_output import report
from tidemill.cli.options import (
    BackfillOptions,
    ColumnArgument,
    JsonOption,
    NoWaitOption,
    PreviewOptions,
    RefreshOptions,
    TableArgument,
    ViewArgument,
    with_groups,
)
from tidemill.cli.output import print_json
from tidemill.cli.policies import ErrorOptions
from tidemill.cli.row_output import preview_json, print_preview
from tidemill.cli.target import Target


@with_groups
def backfill(
    table: TableArgument,
    column: ColumnArgument,
    *,
    options: BackfillOptions,
    errors: ErrorOptions,
    no_wait: NoWaitOption = False,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """Fill a computed column where it is missing or out of date."""
    policy = errors.policy()
    with target.open() as lake:
        job = lake.table(table).backfill(column, **options, on_error=policy)
        report(job, is_waiting=not no_wait, as_json=as_json)


@with_groups
def refresh(
    view: ViewArgument,
    *,
    options: RefreshOptions,
    errors: ErrorOptions,
    no_wait: NoWaitOption = False,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """Bring a materialized view up to date."""
    policy = errors.policy()
    with target.open() as lake:
        job = lake.view(view).refresh(**options, on_error=policy)
        report(job, is_waiting=not no_wait, as_json=as_json)


@with_groups
def preview(
    table: TableArgument,
    column: ColumnArgument,
    *,
    options: PreviewOptions,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """Compute a few rows of a column and show them; nothing is published."""
    with target.open() as lake:
        found = lake.table(table).preview(column, **options)
    if as_json:
        print_json(preview_json(found))
    else:
        print_preview(found)
