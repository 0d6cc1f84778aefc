"""`tidemill explain …`: what a job would do, before it does it."""

from __future__ import annotations

from dataclasses import asdict

import typer

from tidemill.cli.jobs import ColumnArgument, FullOption, TableArgument, ViewArgument, WhereOption
from tidemill.cli.output import print_json, print_line
from tidemill.cli.target import ROOT, JsonOption, KeyOption, RootOption, UrlOption, open_lake
from tidemill.sdk.explain import Explanation, RefreshExplanation

explain_app = typer.Typer(no_args_is_help=True, help="Say what a backfill or refresh would do, and why.")


@explain_app.command("backfill")
def explain_backfill(
    table: TableArgument,
    column: ColumnArgument,
    *,
    where: WhereOption = None,
    url: UrlOption = None,
    root: RootOption = ROOT,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """What filling a computed column would do now."""
    with open_lake(url, root, api_key) as lake:
        _show(lake.table(table).explain(column, where=where), as_json=as_json)


@explain_app.command("refresh")
def explain_refresh(
    view: ViewArgument,
    *,
    full: FullOption = False,
    url: UrlOption = None,
    root: RootOption = ROOT,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """What refreshing a view would do now."""
    with open_lake(url, root, api_key) as lake:
        _show(lake.view(view).explain(full=full), as_json=as_json)


def _show(explanation: Explanation | RefreshExplanation, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(explanation))
    else:
        print_line(str(explanation))
