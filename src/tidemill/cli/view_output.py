"""Views as commands print them: what differs, and where values come from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from tidemill.cli.output import console, print_line
from tidemill.sdk.job_results import Verification, shortened
from tidemill.sdk.status import Lineage, LineageStep


def print_verification(found: Verification) -> None:
    print_line(str(found))
    if not found.differences:
        return
    table = Table("What", "Key", "Columns", "Expected", "Found", box=None, header_style="bold")
    for difference in found.differences:
        values = (difference.expected, difference.found)
        table.add_row(
            difference.kind,
            escape(shortened(difference.key)),
            escape(", ".join(difference.columns)),
            *("" if value is None else escape(shortened(value)) for value in values),
        )
    console().print(table)


def print_lineage(lineage: Lineage) -> None:
    column = f".{lineage.column}" if lineage.column else ""
    tree = Tree(escape(f"{lineage.object}{column} ({lineage.kind})"))
    _grow(tree, ("made from", "which are made from"), lineage.upstream)
    _grow(tree, ("used by", "which are used by"), lineage.downstream)
    console().print(tree)
    if not lineage.upstream and not lineage.downstream:
        print_line("It is made from nothing, and nothing is made from it")


def _grow(tree: Tree, labels: tuple[str, str], steps: Sequence[LineageStep]) -> None:
    """One branch for each distance, inside the one before it."""
    branch, (label, next_label) = tree, labels
    for _, found in groupby(steps, lambda step: step.depth):
        branch = branch.add(f"[dim]{label}[/]")
        label = next_label
        for step in found:
            branch.add(escape(str(step)))
