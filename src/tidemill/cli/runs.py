"""The commands about backfills and refreshes: `backfill`, `refresh`, `preview` and `explain …`."""

from __future__ import annotations

from dataclasses import asdict

import typer

from tidemill.cli.options import (
    BackfillOptions,
    ColumnArgument,
    ErrorOptions,
    JsonOption,
    NoWaitOption,
    PreviewOptions,
    RefreshOptions,
    TableArgument,
    Target,
    ViewArgument,
    with_groups,
)
from tidemill.cli.output import preview_json, print_json, print_preview, print_result, report

explain_app = typer.Typer(no_args_is_help=True, help="Show what a backfill or refresh would do, and why.")


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
    """Compute a few rows of a column and show them without publishing anything."""
    with target.open() as lake:
        found = lake.table(table).preview(column, **options)
    if as_json:
        print_json(preview_json(found))
    else:
        print_preview(found)


@explain_app.command("backfill")
@with_groups
def explain_backfill(
    table: TableArgument,
    column: ColumnArgument,
    *,
    options: BackfillOptions,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """Show what a backfill would do now."""
    with target.open() as lake:
        explanation = lake.table(table).explain(column, **options)
    print_result(asdict(explanation), str(explanation), as_json=as_json)


@explain_app.command("refresh")
@with_groups
def explain_refresh(
    view: ViewArgument, *, options: RefreshOptions, target: Target, as_json: JsonOption = False
) -> None:
    """Show what a refresh would do now."""
    with target.open() as lake:
        explanation = lake.view(view).explain(**options)
    print_result(asdict(explanation), str(explanation), as_json=as_json)
