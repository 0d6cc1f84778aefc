"""`tidemill manifests …`: the stored packages and variables for functions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from tidemill.cli.options import JsonOption, Target, with_groups
from tidemill.cli.output import console, print_json, print_result

manifests_app = typer.Typer(no_args_is_help=True, help="Manage packages and variables for functions.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the manifest.")]
PipOption = Annotated[
    list[str] | None,
    typer.Option("--pip", metavar="PACKAGE", help="Package in pip's notation. May be repeated."),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="Environment variable. May be repeated."),
]


@manifests_app.command("put")
@with_groups
def put_manifest(
    name: NameArgument,
    *,
    pip: PipOption = None,
    env: EnvOption = None,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """Store a manifest, replacing any of that name."""
    variables = dict(map(variable, env or ()))
    with target.open() as lake:
        lake.put_manifest(name, pip=pip or (), env=variables)
    print_result(
        {"name": name, "pip": pip or [], "env": sorted(variables)}, f"Stored {name}", as_json=as_json
    )


@manifests_app.command("list")
@with_groups
def list_manifests(*, target: Target, as_json: JsonOption = False) -> None:
    """List the stored manifests; values of variables are not shown."""
    with target.open() as lake:
        found = lake.list_manifests()
    if as_json:
        print_json([asdict(manifest) for manifest in found])
        return
    table = Table("Name", "Packages", "Variables", box=None, header_style="bold")
    for manifest in found:
        table.add_row(escape(manifest.name), escape(", ".join(manifest.pip)), escape(", ".join(manifest.env)))
    console().print(table if found else "No manifests yet")


@manifests_app.command("drop")
@with_groups
def drop_manifest(name: NameArgument, *, target: Target, as_json: JsonOption = False) -> None:
    """Remove a stored manifest."""
    with target.open() as lake:
        lake.drop_manifest(name)
    print_result({"name": name}, f"Dropped {name}", as_json=as_json)


def variable(text: str) -> tuple[str, str]:
    """`NAME=VALUE` taken apart; the value may hold further equal signs."""
    name, separator, value = text.partition("=")
    if not name or not separator:
        # Without what was given: it may be a secret whose name was forgotten.
        raise typer.BadParameter("write --env NAME=VALUE")
    return name, value
