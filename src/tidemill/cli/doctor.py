"""`tidemill doctor`: is this machine ready, and if not, what to do."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tidemill.cli.checks import (
    Check,
    check_database,
    check_java,
    check_python,
    check_server,
    check_spark,
    check_storage,
)
from tidemill.cli.options import JsonOption
from tidemill.cli.output import console, print_json
from tidemill.cli.target import ROOT, RootOption


def doctor(
    *,
    root: RootOption = ROOT,
    deep: Annotated[bool, typer.Option("--deep", help="Start a small Spark session too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check Python, Java, Spark, storage, database and server."""
    checks = run_checks(root.absolute(), is_deep=deep)
    if as_json:
        print_json(
            {"ok": all(check.is_ok for check in checks), "checks": [asdict(check) for check in checks]}
        )
    else:
        for check in checks:
            _print(check)
    if not all(check.is_ok for check in checks):
        raise typer.Exit(1)


def run_checks(root: Path, *, is_deep: bool) -> list[Check]:
    storage = check_storage(root)
    checks = [check_python(), check_java(), check_spark(is_deep=is_deep), storage]
    # Without a folder to be in, the database would only repeat the same fault.
    return [*checks, *([check_database(root)] if storage.is_ok else []), check_server(root)]


def _print(check: Check) -> None:
    mark = "[green]ok   [/]" if check.is_ok else "[red]fault[/]"
    console().print(f"{mark} {check.name:<9} {escape(check.detail)}", soft_wrap=True)
    if check.advice:
        console().print(f"      {'':<9} [yellow]{escape(check.advice)}[/]", soft_wrap=True)
