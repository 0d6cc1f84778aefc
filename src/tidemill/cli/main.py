"""The command `tidemill`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

import tidemill
from tidemill.cli.audit import audit
from tidemill.cli.auth import auth_app
from tidemill.cli.columns import columns_app, errors, lineage
from tidemill.cli.doctor import doctor
from tidemill.cli.jobs import jobs_app
from tidemill.cli.manifests import manifests_app
from tidemill.cli.output import print_line
from tidemill.cli.runs import backfill, explain_app, preview, refresh
from tidemill.cli.serve import serve, work
from tidemill.cli.views import verify, views_app

app = typer.Typer(
    name="tidemill",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="An open lakehouse catalog that computes columns and materialized views.",
)
app.command("serve")(serve)
app.command("work")(work)
app.command("doctor")(doctor)
app.command("backfill")(backfill)
app.command("preview")(preview)
app.command("refresh")(refresh)
app.command("verify")(verify)
app.command("errors")(errors)
app.command("lineage")(lineage)
app.command("audit")(audit)
app.add_typer(columns_app, name="columns")
app.add_typer(views_app, name="views")
app.add_typer(jobs_app, name="jobs")
app.add_typer(explain_app, name="explain")
app.add_typer(manifests_app, name="manifests")
app.add_typer(auth_app, name="auth")


def _print_version(value: bool) -> None:  # noqa: FBT001  # typer calls it with the flag
    if value:
        print_line(f"tidemill {tidemill.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """An open lakehouse catalog that computes columns and materialized views."""


def main() -> None:
    """Runs the command; whatever goes wrong becomes one line and exit code 1."""
    try:
        app(prog_name="tidemill")
    except Exception as error:  # noqa: BLE001  # the command line's boundary
        lines = str(error).strip().splitlines()
        message = lines[0] if lines else type(error).__name__
        Console(stderr=True, highlight=False).print(f"Error: {message}", markup=False, soft_wrap=True)
        sys.exit(1)
