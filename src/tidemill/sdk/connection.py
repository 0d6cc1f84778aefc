"""`connect`: finds the server of a lake, or starts one on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

import httpx

from tidemill.sdk.errors import ServerNotStarted
from tidemill.sdk.http import ServerClient, Token, trusted_certificates
from tidemill.sdk.lake import Lake

READY: Final = "Tidemill is ready at "
START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 20.0
LOG_TAIL_LINES: Final = 20
# The user's own code on the user's own machine: functions need no process of their own. With clients, some of
# the code may be somebody else's.
DEFAULTS: Final = {"TIDEMILL_FUNCTION_ISOLATION": "none"}
AUTHENTICATION: Final = frozenset({"TIDEMILL_CLIENTS", "TIDEMILL_OIDC_ISSUERS"})
DEFAULT_ROOT: Final = "tidemill-data"


class EmbeddedServer:
    """A server process that this process started and that ends with it."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self._process = process
        self.url = url

    def stop(self) -> None:
        """Closes its standard input, which tells it to stop; terminates it if it does not."""
        _end(self._process)


def find_server(root: Path, ca_file: str | Path | None = None) -> str | None:
    """The address of the server that runs under that root, if one does."""
    try:
        url = json.loads((root / "server.json").read_text())["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if isinstance(url, str) and _is_healthy(url, ca_file) else None


def _environment() -> dict[str, str]:
    given = dict(os.environ)  # noqa: TID251  # handed on to the server, which reads it
    return given if AUTHENTICATION & given.keys() else {**DEFAULTS, **given}


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
            env=_environment(),
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


def _is_healthy(url: str, ca_file: str | Path | None) -> bool:
    verify = trusted_certificates(ca_file)
    try:
        return httpx.get(f"{url}/api/v1/health", timeout=2.0, trust_env=False, verify=verify).is_success
    except httpx.HTTPError:
        return False


def connect(
    target: str | Path | None = None,
    *,
    credential: str | None = None,
    token: Token | None = None,
    ca_file: str | Path | None = None,
) -> Lake:
    """Connects to a lake.

    Args:
        target: The address of a server (`"http://…"`), or the root folder of one on this machine, by default
            `./tidemill-data`. The server that runs under that folder is used; if there is none, one is
            started with a worker and ends when the lake is closed or this process ends.
        credential: `"<client id>:<secret>"` of one of the server's clients, sent with every request. A server
            without clients ignores it.
        token: A bearer token instead, of an OpenID issuer that the server accepts or of the server itself; or
            a function that returns one, called for every request, if tokens expire sooner than you are done.
        ca_file: A file of certificates, in PEM, that the certificate of an `https://` server is checked
            with instead of the well-known ones.

    Raises:
        ValueError: The credential does not have that form, there is a token besides, or the file has no
            certificates.
        ServerUnreachable: Nothing responds at the address.
        ServerNotStarted: The embedded server did not start; the message has the end of its log.

    The credential is checked with the first request: `Unauthenticated` if the server does not know it,
    `Forbidden` if the client's grants do not allow the request.

    >>> import tidemill
    >>> with tidemill.connect(lake.url) as same:
    ...     same.health()["status"]
    'ok'
    """
    _check_credential(credential)
    if credential is not None and token is not None:
        raise ValueError("give either a credential or a token")

    def client_of(url: str) -> ServerClient:
        return ServerClient(url, api_key=credential, token=token, ca_file=ca_file)

    if isinstance(target, str) and target.startswith(("http://", "https://")):
        client = client_of(target)
        client.get("/api/v1/health")
        return Lake(client)
    return _embedded(Path(target or DEFAULT_ROOT).absolute(), client_of, ca_file)


def _embedded(root: Path, client_of: Callable[[str], ServerClient], ca_file: str | Path | None) -> Lake:
    url = find_server(root, ca_file)
    if url is not None:
        return Lake(client_of(url))
    try:
        server = start_server(root)
    except ServerNotStarted:
        # Another process may have started one at the same moment.
        url = find_server(root, ca_file)
        if url is None:
            raise
        return Lake(client_of(url))
    return Lake(client_of(server.url), server.stop)


def _check_credential(credential: str | None) -> None:
    client_id, _, secret = (credential or "").partition(":")
    if credential is not None and not (client_id and secret):
        raise ValueError('credential must be "<client id>:<secret>"')
