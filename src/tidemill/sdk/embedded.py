"""A server on the user's own machine: found under its root folder, or started there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Final

import httpx

from tidemill.sdk.errors import ServerNotStarted

READY: Final = "Tidemill is ready at "
START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 20.0
LOG_TAIL_LINES: Final = 20
# The user's own code on the user's own machine: functions need no process of their own.
DEFAULTS: Final = {"TIDEMILL_FUNCTION_ISOLATION": "none"}


class EmbeddedServer:
    """A server process that this process started and that ends with it."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self._process = process
        self.url = url

    def stop(self) -> None:
        """Closes its standard input, which tells it to end; insists if it does not."""
        _end(self._process)


def find_server(root: Path) -> str | None:
    """The address of the server that runs under that root, if one does."""
    try:
        url = json.loads((root / "server.json").read_text())["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if isinstance(url, str) and _is_healthy(url) else None


def start_server(root: Path) -> EmbeddedServer:
    """Starts a server with a worker under that root and waits until it is ready."""
    log = root / "logs" / "server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        begin = output.tell()
        # A session of its own: an interrupt at the terminal stops the caller's cell, not the jobs.
        process = subprocess.Popen(
            _command(root),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**DEFAULTS, **os.environ},  # noqa: TID251  # handed on to the server, which reads it
        )
    try:
        return EmbeddedServer(process, _await_ready(process, log, begin))
    except BaseException:
        _end(process)
        raise


def _command(root: Path) -> list[str]:
    options = ["--root", str(root), "--port", "0", "--exit-with-stdin"]
    return [sys.executable, "-m", "tidemill", "serve", *options]


def _await_ready(process: subprocess.Popen[bytes], log: Path, begin: int) -> str:
    deadline = time.monotonic() + START_SECONDS
    with log.open("rb") as written:
        written.seek(begin)
        while time.monotonic() < deadline:
            has_ended = process.poll() is not None
            url = _ready_url(written, begin)
            if url is not None:
                return url
            if has_ended:
                raise ServerNotStarted(
                    f"The server ended with code {process.returncode}:\n{_tail(log, begin)}"
                )
            time.sleep(0.05)
    raise ServerNotStarted(
        f"The server was not ready after {START_SECONDS:g} s; {log} ends with:\n{_tail(log, begin)}"
    )


def _ready_url(written: IO[bytes], begin: int) -> str | None:
    written.seek(begin)
    for line in written.read().decode(errors="replace").splitlines(keepends=True):
        _, found, after = line.partition(READY)
        if found and after.endswith("\n"):
            return after.strip()
    return None


def _tail(log: Path, begin: int) -> str:
    with log.open("rb") as written:
        written.seek(begin)
        lines = written.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-LOG_TAIL_LINES:]) or "(its log is empty)"


def _end(process: subprocess.Popen[Any]) -> None:
    if process.stdin is not None and not process.stdin.closed:
        process.stdin.close()
    for insist in (process.terminate, process.kill):
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            insist()
        else:
            return
    process.wait()


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/v1/health", timeout=2.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False
