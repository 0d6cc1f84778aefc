"""`tidemill columns …`, `tidemill errors`, `tidemill lineage`: what is known about computed values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tidemill.cli.options import BranchOption, ColumnArgument, JsonOption, TableArgument, Target, with_groups
from tidemill.cli.output import print_errors, print_json, print_line, print_lineage, print_status
from tidemill.jobs.model.options import RowSelection
from tidemill.sdk.lake import Lake

columns_app = typer.Typer(no_args_is_help=True, help="Inspect computed columns.")
SelectionArgument = Annotated[
    RowSelection, typer.Argument(metavar="stale|missing|failed", help="Which rows.")
]
AnyColumnArgument = Annotated[
    str | None, typer.Argument(metavar="[COLUMN]", help="Only errors of this computed column.")
]
JobOption = Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only errors of this job.")]
TracebackOption = Annotated[bool, typer.Option("--traceback", help="Also print the tracebacks.")]
OfColumnOption = Annotated[
    str | None, typer.Option("--column", metavar="COLUMN", help="Restrict to this column.")
]


@columns_app.command("status")
@with_groups
def show_status(
    table: TableArgument,
    column: ColumnArgument,
    *,
    branch: BranchOption = None,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """Show how many rows are fresh, stale, missing or failed."""
    with target.open() as lake:
        status = lake.table(table).column_status(column, branch=branch)
    if as_json:
        print_json(asdict(status))
    else:
        print_status(status)


@columns_app.command("rows")
@with_groups
def list_rows(
    table: TableArgument,
    column: ColumnArgument,
    selection: SelectionArgument,
    *,
    branch: BranchOption = None,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """List the ids of rows that are stale, missing or failed, one per line."""
    with target.open() as lake:
        row_ids = lake.table(table).column_rows(column, selection.value, branch=branch)
    if as_json:
        print_json(row_ids)
    elif row_ids:
        print_line("\n".join(map(str, row_ids)))


@with_groups
def errors(
    table: TableArgument,
    column: AnyColumnArgument = None,
    *,
    job: JobOption = None,
    branch: BranchOption = None,
    traceback: TracebackOption = False,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """List the rows on which functions failed, and what they raised."""
    with target.open() as lake:
        # The functions of a view fail, too; those of a column are asked for as in any table.
        is_view = column is None and _is_view(lake, table)
        found = (lake.view(table) if is_view else lake.table(table)).errors(column, job, branch=branch)
    if as_json:
        print_json([asdict(error) for error in found])
    elif found:
        print_errors(found, with_tracebacks=traceback)
    else:
        print_line("No function failed on any row")


def _is_view(lake: Lake, name: str) -> bool:
    namespace, _, last = name.rpartition(".")
    return last in lake.list_views(namespace or None)


@with_groups
def lineage(
    table: TableArgument,
    *,
    column: OfColumnOption = None,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """Show what a table or view is made from, and what is made from it."""
    with target.open() as lake:
        found = lake.table(table).lineage(column)
    if as_json:
        print_json(asdict(found))
    else:
        print_lineage(found)
