"""Finding and starting a server under a root folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidemill.sdk import connection
from tidemill.sdk.connection import find_server, start_server
from tidemill.sdk.errors import ServerNotStarted

ECHO = "#!/bin/sh\necho 'starting'; echo 'Tidemill is ready at http://127.0.0.1:9'; cat\n"
BROKEN = "#!/bin/sh\necho 'no Java found'; exit 3\n"


@pytest.fixture
def interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for Python, so that what a server prints can be chosen."""
    script = tmp_path / "python"
    script.write_text(ECHO)
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return script


@pytest.mark.parametrize(
    "noted", [None, "not JSON", "[]", "{}", '{"url": 7}', '{"url": "http://127.0.0.1:9"}']
)
def test_no_server_is_found_where_none_answers(noted: str | None, tmp_path: Path) -> None:
    if noted is not None:
        (tmp_path / "server.json").write_text(noted)
    assert find_server(tmp_path) is None


@pytest.mark.usefixtures("interpreter")
def test_a_started_server_ends_when_it_is_stopped(tmp_path: Path) -> None:
    server = start_server(tmp_path / "root")
    assert server.url == "http://127.0.0.1:9"
    server.stop()
    assert "starting" in (tmp_path / "root" / "logs" / "server.log").read_text()


def test_a_server_that_ends_shows_its_log(interpreter: Path, tmp_path: Path) -> None:
    interpreter.write_text(BROKEN)
    with pytest.raises(ServerNotStarted, match="ended with code 3:\nno Java found"):
        start_server(tmp_path / "root")


def test_a_server_that_stays_silent_is_given_up(
    interpreter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter.write_text("#!/bin/sh\ncat\n")
    monkeypatch.setattr(connection, "START_SECONDS", 0.2)
    with pytest.raises(ServerNotStarted, match=r"not ready after 0\.2 s"):
        start_server(tmp_path / "root")


@pytest.mark.parametrize(("said", "passed"), [(None, "none"), ("process", "process")])
def test_functions_run_inside_the_tasks_unless_the_environment_says_otherwise(
    said: str | None, passed: str, interpreter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEMILL_FUNCTION_ISOLATION", raising=False)
    if said is not None:
        monkeypatch.setenv("TIDEMILL_FUNCTION_ISOLATION", said)
    interpreter.write_text(f'#!/bin/sh\necho "isolation: $TIDEMILL_FUNCTION_ISOLATION"\n{ECHO}')
    start_server(tmp_path / "root").stop()
    assert f"isolation: {passed}\n" in (tmp_path / "root" / "logs" / "server.log").read_text()
