"""`tidemill explain …`: what a job would do, before it does it."""

from __future__ import annotations

from dataclasses import asdict

import typer

from tidemill.cli.options import (
    BackfillOptions,
    ColumnArgument,
    JsonOption,
    RefreshOptions,
    TableArgument,
    ViewArgument,
    with_groups,
)
from tidemill.cli.output import print_json, print_line
from tidemill.cli.target import Target
from tidemill.sdk.explain import Explanation, RefreshExplanation

explain_app = typer.Typer(no_args_is_help=True, help="Say what a backfill or refresh would do, and why.")


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
    """What filling a computed column would do now."""
    with target.open() as lake:
        _show(lake.table(table).explain(column, **options), as_json=as_json)


@explain_app.command("refresh")
@with_groups
def explain_refresh(
    view: ViewArgument, *, options: RefreshOptions, target: Target, as_json: JsonOption = False
) -> None:
    """What refreshing a view would do now."""
    with target.open() as lake:
        _show(lake.view(view).explain(**options), as_json=as_json)


def _show(explanation: Explanation | RefreshExplanation, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(explanation))
    else:
        print_line(str(explanation))
