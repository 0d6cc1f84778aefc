"""`tidemill views …` and `tidemill verify`: materialized views defined, looked at and checked."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.options import JsonOption, NoWaitOption, Target, VerifyOptions, ViewArgument, with_groups
from tidemill.cli.output import print_json, print_result, print_verification, report
from tidemill.jobs.model.views import RefreshPolicy
from tidemill.sdk.definitions import SqlDefinition
from tidemill.sdk.view import View

views_app = typer.Typer(no_args_is_help=True, help="Create and inspect materialized views.")

QueryOption = Annotated[
    str | None, typer.Option("--query", metavar="SQL", help="SQL query that defines the view.")
]
FileOption = Annotated[
    Path | None,
    typer.Option("--file", exists=True, dir_okay=False, metavar="FILE", help="File with the SQL query."),
]
WithDataOption = Annotated[bool, typer.Option("--with-data", help="Fill the view right away.")]
AutoOption = Annotated[
    bool, typer.Option("--auto-refresh", help="Refresh it automatically when its sources change.")
]
PolicyOption = Annotated[
    RefreshPolicy, typer.Option("--policy", help="Whether refreshes recompute what changed or everything.")
]
CascadeOption = Annotated[bool, typer.Option("--cascade", help="Also remove views made from it.")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Remove it even if views are made from it; they cannot be refreshed.")
]
NamespaceArgument = Annotated[
    str | None, typer.Argument(metavar="[NAMESPACE]", help="Namespace to list; the root by default.")
]


@views_app.command("create")
@with_groups
def create_view(
    view: ViewArgument,
    *,
    query: QueryOption = None,
    file: FileOption = None,
    with_data: WithDataOption = False,
    auto_refresh: AutoOption = False,
    policy: PolicyOption = RefreshPolicy.AUTO,
    no_wait: NoWaitOption = False,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """Create a view from an SQL query."""
    definition = SqlDefinition(_statement(query, file))
    with target.open() as lake:
        made = lake.create_materialized_view(
            view, definition, with_no_data=not with_data, auto_refresh=auto_refresh, policy=policy.value
        )
        _report_created(made, is_waiting=not no_wait, as_json=as_json)


@views_app.command("list")
@with_groups
def list_views(namespace: NamespaceArgument = None, *, target: Target, as_json: JsonOption = False) -> None:
    """List the views of a namespace, one per line."""
    with target.open() as lake:
        names = [f"{namespace}.{name}" if namespace else name for name in lake.list_views(namespace)]
    print_result(names, "\n".join(names) or "No views here", as_json=as_json)


@views_app.command("status")
@with_groups
def show_status(view: ViewArgument, *, target: Target, as_json: JsonOption = False) -> None:
    """Show whether a view is up to date, and what has changed in its sources."""
    with target.open() as lake:
        status = lake.view(view).status()
    print_result(asdict(status), str(status), as_json=as_json)


@views_app.command("drop")
@with_groups
def drop_view(
    view: ViewArgument,
    *,
    cascade: CascadeOption = False,
    force: ForceOption = False,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """Remove a view and its data. Refused if other views are made from it."""
    if cascade and force:
        raise typer.BadParameter("give either --cascade or --force")
    with target.open() as lake:
        lake.drop_view(view, cascade=cascade, force=force)
    print_result({"view": view}, f"Dropped {view}", as_json=as_json)


@with_groups
def verify(
    view: ViewArgument,
    *,
    options: VerifyOptions,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """Recompute rows of a view and compare; exit code 1 if they differ."""
    with target.open() as lake:
        job = lake.view(view).verify(**options)
        found = job.wait(progress=not as_json and sys.stderr.isatty()).verification
    if found is None:
        raise typer.Exit(1)
    if as_json:
        print_json(asdict(found))
    else:
        print_verification(found)
    if not found.is_same:
        raise typer.Exit(1)


def _statement(query: str | None, file: Path | None) -> str:
    if (query is None) is (file is None):
        raise typer.BadParameter("give the SQL query with either --query or --file")
    statement = query if query is not None else file.read_text() if file is not None else ""
    if not statement.strip():
        raise typer.BadParameter("the SQL query is empty")
    return statement


def _report_created(view: View, *, is_waiting: bool, as_json: bool) -> None:
    if view.first_refresh is not None:
        report(view.first_refresh, is_waiting=is_waiting, as_json=as_json)
    else:
        text = f"Created {view.name}; fill it with 'tidemill refresh {view.name}'"
        print_result({"view": view.name}, text, as_json=as_json)
