"""Groups of options as options of a command."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from tidemill.cli.options import VerifyOptions, with_groups


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option("--width")] = 1
    height: Annotated[int, typer.Option("--height")] = 2


@with_groups
def area(name: str, *, size: Size, unit: Annotated[str, typer.Option("--unit")] = "m") -> None:
    """Say how large it is."""
    typer.echo(f"{name}: {size.width * size.height} {unit}")


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(area)
    return made


def test_a_command_takes_the_options_of_a_group(app: typer.Typer) -> None:
    done = CliRunner().invoke(app, ["pond", "--height", "3", "--unit", "km", "--width", "4"])
    assert done.output == "pond: 12 km\n"


def test_options_that_were_not_given_have_their_defaults(app: typer.Typer) -> None:
    assert CliRunner().invoke(app, ["pond"]).output == "pond: 2 m\n"


def test_the_group_itself_is_no_parameter() -> None:
    assert list(inspect.signature(area).parameters) == ["name", "width", "height", "unit"]


def test_a_group_of_declared_options_comes_as_arguments_of_the_sdk() -> None:
    given: list[dict[str, object]] = []

    @with_groups
    def run(*, options: VerifyOptions, loud: Annotated[bool, typer.Option("--loud")] = False) -> None:
        given.append({**options, "loud": loud})

    made = typer.Typer()
    made.command()(run)
    assert CliRunner().invoke(made, []).exit_code == 0
    assert CliRunner().invoke(made, ["--rows", "3", "--loud"]).exit_code == 0
    assert given == [
        {"rows": None, "seed": 0, "cluster": None, "loud": False},
        {"rows": 3, "seed": 0, "cluster": None, "loud": True},
    ]
    assert CliRunner().invoke(made, ["--rows", "0"]).exit_code == 2
