"""The server process: HTTP, and in the embedded default one worker as a child."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from threading import Event, Thread
from typing import Final

import structlog
import uvicorn

from tidemill.errors import InvalidInput
from tidemill.protocols.app import create_app
from tidemill.protocols.http.limits import Limits
from tidemill.server.bootstrap import Lake, build_operations, open_lake
from tidemill.server.health import WorkerState
from tidemill.server.lifelines import GRACE_SECONDS, stop_with_stdin
from tidemill.server.logs import configure_logs
from tidemill.server.settings import ServerSettings

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
STATE_FILE: Final = "server.json"
RESTART_SECONDS: Final = 1.0
WORKER_SILENCE: Final = timedelta(seconds=10)

log = structlog.get_logger("tidemill.server")


def serve(settings: ServerSettings) -> None:
    """Serves until told to stop; prints one line when it is ready."""
    configure_logs(settings.log_level)
    if settings.host not in LOOPBACK:
        raise InvalidInput("host", f"{settings.host} is not a loopback address; others need authentication")
    lake = open_lake(settings)
    child = WorkerProcess(settings) if settings.with_worker else None
    bell = _nobody if child is None else child.wake
    app = create_app(build_operations(lake, Workers(lake, child), bell), Limits())
    listener = _listen(settings.host, settings.port)
    url = f"http://{settings.host}:{listener.getsockname()[1]}"
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", server_header=False)
    server = AnnouncingServer(config, lambda: _announce(settings, url))
    if settings.exit_with_stdin:
        stop_with_stdin(lambda: setattr(server, "should_exit", True))
    if child is not None:
        child.start()
    try:
        server.run(sockets=[listener])
    finally:
        if child is not None:
            child.stop()
        _withdraw(settings)
        lake.store.close()


class AnnouncingServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()


class WorkerProcess:
    """The worker child: started again when it dies, ended when the server ends, however that ends."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._is_stopping = Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper = Thread(target=self._keep, name="worker keeper", daemon=True)

    def start(self) -> None:
        self._keeper.start()

    def wake(self) -> None:
        """There is a job: the worker need not wait for its next look."""
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(BrokenPipeError, ValueError):
                process.stdin.write(b"\n")
                process.stdin.flush()

    def stop(self) -> None:
        self._is_stopping.set()
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                process.wait(GRACE_SECONDS * 1.5)
            except subprocess.TimeoutExpired:
                process.kill()
        self._keeper.join()

    def _keep(self) -> None:
        while not self._is_stopping.is_set():
            # The settings go as environment, so that the child has exactly ours.
            settings = self._settings.model_copy(update={"exit_with_stdin": True})
            environment = {**os.environ, **_as_environment(settings)}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidemill", "work"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=environment,
            )
            code = self._process.wait()
            if not self._is_stopping.wait(RESTART_SECONDS):
                log.warning("the worker ended and is started again", exit_code=code)


class Workers:
    """Workers by the rows they leave: those of this server and those on other machines."""

    def __init__(self, lake: Lake, child: WorkerProcess | None) -> None:
        self._lake = lake
        self._child = child

    def state(self) -> WorkerState:
        with self._lake.store.transaction() as tx:
            last = tx.workers.last_seen_at()
            is_recent = last is not None and tx.now() - last <= WORKER_SILENCE
        if is_recent:
            return "running"
        return "absent" if self._child is None else "starting"


def _as_environment(settings: ServerSettings) -> dict[str, str]:
    values = json.loads(settings.model_dump_json(exclude_none=True))
    return {
        f"TIDEMILL_{key.upper()}": json.dumps(value) if isinstance(value, dict) else str(value)
        for key, value in values.items()
    }


def _nobody() -> None:
    """Workers elsewhere look for jobs by themselves."""


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only for sockets that say they are TCP; with it every answer
    # to a kept connection waits 40 ms for a delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        raise InvalidInput("port", f"{port} on {host} cannot be used: {error.strerror}") from error
    return listener


def _announce(settings: ServerSettings, url: str) -> None:
    """Says where we are: in a file for those who look under the root, in a line for those who started us."""
    state = json.dumps({"url": url, "pid": os.getpid()})
    staged = settings.root / f"{STATE_FILE}.{os.getpid()}"
    staged.write_text(state)
    staged.replace(settings.root / STATE_FILE)
    sys.stdout.write(f"Tidemill is ready at {url}\n")
    sys.stdout.flush()


def _withdraw(settings: ServerSettings) -> None:
    """Another server may have been started under the same root since; its file stays."""
    file = settings.root / STATE_FILE
    with suppress(FileNotFoundError):
        if json.loads(file.read_text())["pid"] == os.getpid():
            file.unlink()
