"""The command line against a server that only notes what it is asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.unit.sdk.noting import NotingServer
from tidemill.cli import options
from tidemill.cli.main import app


class CommandLine:
    """Runs commands; what the server answers is chosen by the last part of the path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.server = NotingServer(**answers)
        monkeypatch.setattr(options, "connect", lambda url, **_: self.server.lake())

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--url", "http://lake"], env={"COLUMNS": "200"})

    def printed(self, *arguments: str) -> str:
        """What a command that went well printed."""
        done = self.run(*arguments)
        assert done.exit_code == 0, done.output
        return done.output

    def json(self, *arguments: str) -> Any:
        return json.loads(self.printed(*arguments, "--json"))
