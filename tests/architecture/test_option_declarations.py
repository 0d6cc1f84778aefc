"""A job option is declared once: the reader, the stored form, the command and the docs follow from it."""

import subprocess
import sys
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import pytest
import typer
from typer.testing import CliRunner

from scripts.option_tables import table
from tidemill.cli.options import with_groups
from tidemill.errors import InvalidInput
from tidemill.jobs.model.declarations import Shorthand, option, read_options
from tidemill.jobs.model.options import VerifyRequest
from tidemill.store.column_types import value_of

ROOT: Final = Path(__file__).parents[2]


class Depth(StrEnum):
    ROWS = "rows"
    VALUES = "values"


@dataclass(frozen=True, slots=True)
class DeeperVerifyRequest(VerifyRequest):
    """A request with an option that no other file has heard of."""

    how_deep: Depth | None = field(
        default=None,
        metadata=option(
            "How closely to look.",
            name="depth",
            alias="verification_depth",
            shorthand=Shorthand("thorough", Depth.VALUES, "Look at every value."),
            since="0.2",
            hint_for="views without rows",
        ),
    )


DeeperOptions = Annotated[dict[str, Any], DeeperVerifyRequest]


@pytest.mark.parametrize(
    "body", [{"depth": "values"}, {"depth": "VALUES"}, {"verification_depth": "values"}, {"thorough": True}]
)
def test_bodies_have_the_option(body: dict[str, Any]) -> None:
    assert read_options(DeeperVerifyRequest, body).how_deep is Depth.VALUES


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ({"depth": "deep"}, "depth"),
        ({"depth": "rows", "verification_depth": "values"}, "verification_depth"),
        ({"depth": "rows", "thorough": True}, "thorough"),
        ({"how_deep": "rows"}, "how_deep"),
    ],
)
def test_bodies_are_refused_by_field(body: dict[str, Any], refused: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        read_options(DeeperVerifyRequest, body)
    assert raised.value.field == refused


def test_the_option_is_stored_and_comes_back_with_its_type() -> None:
    request = DeeperVerifyRequest(rows=3, how_deep=Depth.ROWS)
    stored = asdict(request)
    assert stored["how_deep"] == "rows"
    assert value_of(DeeperVerifyRequest, {**stored, "how_deep": "rows"}).how_deep is Depth.ROWS


def test_a_command_has_the_option() -> None:
    given: list[dict[str, Any]] = []

    @with_groups
    def verify(*, options: DeeperOptions) -> None:
        given.append(options)

    app = typer.Typer()
    app.command()(verify)
    assert CliRunner().invoke(app, ["--depth", "values", "--seed", "4"]).exit_code == 0
    assert CliRunner().invoke(app, ["--thorough"]).exit_code == 0
    assert [(said["depth"], said["thorough"], said["seed"]) for said in given] == [
        ("values", False, 4),
        (None, True, 0),
    ]
    help = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    assert "How closely to look." in help
    assert "for views without rows." in help
    assert "Look at every value." in help


def test_the_docs_have_the_option() -> None:
    assert table(DeeperVerifyRequest).splitlines()[-2:] == [
        "| `depth` or `verification_depth` | `rows`, `values` | | How closely to look. "
        "Accepted as a hint, without effect, for views without rows. | 0.2 |",
        "| `thorough` | boolean | `false` | Look at every value. The same as `depth`: `values`. | 0.2 |",
    ]


def test_the_page_shows_the_options_as_they_are() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "option_tables.py"), "--check"]
    ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
