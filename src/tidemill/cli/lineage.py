"""`tidemill lineage`: where values come from, and what is made from them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tidemill.cli.options import JsonOption, TableArgument, with_groups
from tidemill.cli.output import print_json
from tidemill.cli.target import Target
from tidemill.cli.view_output import print_lineage

OfColumnOption = Annotated[
    str | None, typer.Option("--column", metavar="COLUMN", help="Of this column only.")
]


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
