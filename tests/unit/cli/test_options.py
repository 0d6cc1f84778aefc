"""Groups of options as options of a command."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from tidemill.cli.options import BackfillOptions, PreviewOptions, with_groups
from tidemill.sdk.options import BACKFILL_OPTIONS, PREVIEW_OPTIONS


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


def test_every_option_has_an_option() -> None:
    assert set(BackfillOptions().options()) == set(BACKFILL_OPTIONS) - {"on_error"}
    assert set(PreviewOptions().options()) == set(PREVIEW_OPTIONS)


def test_nothing_said_is_nothing_sent() -> None:
    assert set(BackfillOptions().options().values()) == {None}
