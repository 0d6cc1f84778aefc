"""The command line: what it accepts and how it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidemill.cli import serve
from tidemill.cli.main import app, main


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIDEMILL_URL", "TIDEMILL_ROOT", "TIDEMILL_CREDENTIAL"):
        monkeypatch.delenv(name, raising=False)


def test_the_version_is_printed() -> None:
    assert run("--version").output.startswith("tidemill ")


@pytest.mark.parametrize(
    "command",
    [
        "serve",
        "work",
        "doctor",
        "backfill",
        "preview",
        "refresh",
        "errors",
        "columns status",
        "columns rows",
        "jobs list",
        "jobs show",
        "jobs watch",
        "jobs pause",
        "jobs resume",
        "jobs cancel",
        "manifests put",
        "manifests list",
        "manifests drop",
        "explain backfill",
        "explain refresh",
    ],
)
def test_every_command_explains_itself(command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert "Usage" in result.output


@pytest.mark.parametrize(
    "command", ["backfill", "backfill library.docs", "jobs list --limit 0", "nonsense", "serve --port x"]
)
def test_wrong_usage_ends_with_two(command: str) -> None:
    assert run(*command.split()).exit_code == 2


@pytest.mark.usefixtures("no_server")
def test_a_fault_is_one_line_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tidemill", "jobs", "list", "--root", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert printed.out == ""
    assert printed.err.startswith("Error: No server runs under")
    assert printed.err.count("\n") == 1


def test_the_server_gets_only_what_was_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = FakeServer()
    monkeypatch.setattr(serve, "_server_part", lambda name: server)
    assert run("serve", "--root", str(tmp_path), "--port", "0", "--no-worker").exit_code == 0
    assert run("work", "--exit-with-stdin").exit_code == 0
    nothing = {"root": None, "exit_with_stdin": None}
    assert server.given == [
        {**nothing, "root": tmp_path, "host": None, "port": 0, "processes": None, "with_worker": False},
        {**nothing, "exit_with_stdin": True, "cluster": None},
    ]
    assert server.ran == ["supervisor", "serve", "work"]


class FakeServer:
    """Takes the place of the server's modules and notes what it is asked for."""

    def __init__(self) -> None:
        self.given: list[dict[str, object]] = []
        self.ran: list[str] = []

    def load_settings(self, **given: object) -> FakeServer:
        self.given.append(given)
        return self

    def run_supervised(self) -> None:
        self.ran.append("supervisor")

    def serve(self, settings: FakeServer, supervision: None) -> None:
        self.ran.append("serve")

    def work(self, settings: FakeServer) -> None:
        self.ran.append("work")


@pytest.mark.usefixtures("no_server")
def test_the_doctor_speaks_json(tmp_path: Path) -> None:
    result = run("doctor", "--root", str(tmp_path), "--json")
    report = json.loads(result.output)
    assert {check["name"] for check in report["checks"]} >= {"Python", "Java", "Spark", "Storage", "Server"}
    assert result.exit_code == (0 if report["ok"] else 1)
