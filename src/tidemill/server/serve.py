"""The server process: HTTP, and in the embedded default a worker for each cluster as a child."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from threading import Event, Thread
from typing import Final

import structlog
import uvicorn
from starlette.types import ASGIApp

from tidemill.errors import InvalidInput
from tidemill.protocols.app import create_app
from tidemill.protocols.http.limits import Limits
from tidemill.server.bootstrap import Adapters, build_operations, open_adapters
from tidemill.server.coalesced_writes import CoalescingProtocol
from tidemill.server.health import WorkerState
from tidemill.server.logs import configure_logs
from tidemill.server.parent_watch import GRACE_SECONDS, stop_with_stdin
from tidemill.server.settings import ServerSettings
from tidemill.storage.local import LocalTableFiles

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
STATE_FILE: Final = "server.json"
RESTART_SECONDS: Final = 1.0
# lancedb asks after a job every 5 seconds on one connection, which must not be closed at that very moment.
KEEP_ALIVE_SECONDS: Final = 75
SHUTDOWN_SECONDS: Final = 5
WORKER_SILENCE: Final = timedelta(seconds=10)

log = structlog.get_logger("tidemill.server")


def serve(settings: ServerSettings) -> None:
    """Serves until told to stop; prints one line when it is ready."""
    configure_logs(settings.log_level)
    if settings.host not in LOOPBACK and not settings.clients:
        raise InvalidInput("host", f"{settings.host} is not a loopback address; others need 'clients'")
    adapters = open_adapters(settings)
    if settings.processes > 1 and not adapters.store.is_shared:
        raise InvalidInput("processes", "have to share a database; one in memory is for one process")
    workers = Workers(adapters, _worker_processes(settings) if settings.with_worker else ())
    listener = _open_listener(settings)
    children = [
        *workers.children,
        *(_sibling_process(settings, listener) for _ in range(settings.processes - 1)),
    ]
    limits = Limits(
        runs_quick_on_loop=adapters.store.is_local and isinstance(adapters.files, LocalTableFiles)
    )
    operations = build_operations(adapters, workers, workers.wake)
    app = create_app(operations, limits, adapters.authentication.caller_of)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{listener.getsockname()[1]}"
    is_first = settings.listener is None
    server = AnnouncingServer(
        _config(app), (lambda: _announce(settings, url)) if is_first else _announce_nothing
    )
    if settings.exit_with_stdin:
        stop_with_stdin(lambda: setattr(server, "should_exit", True))
    for child in children:
        child.start()
    try:
        server.run(sockets=[listener])
    finally:
        for child in children:
            child.stop()
        if is_first:
            _remove_state_file(settings)
        adapters.store.close()


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=CoalescingProtocol,
        ws="none",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        # Whoever watches a job would hold the server up until that has ended.
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


class AnnouncingServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()


class ChildProcess:
    """A child of the server: started again when it dies, ended when the server ends, however that ends."""

    def __init__(self, command: str, settings: ServerSettings) -> None:
        self._command = command
        self.settings = settings
        self._is_stopping = Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._supervisor = Thread(target=self._supervise, name=f"{command} keeper", daemon=True)

    def start(self) -> None:
        self._supervisor.start()

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
        self._supervisor.join()

    def _supervise(self) -> None:
        while not self._is_stopping.is_set():
            # The settings go as environment, so that the child has exactly ours.
            settings = self.settings.model_copy(update={"exit_with_stdin": True})
            environment = {**os.environ, **_as_environment(settings)}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidemill", self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=environment,
                pass_fds=() if settings.listener is None else (settings.listener,),
            )
            code = self._process.wait()
            if not self._is_stopping.wait(RESTART_SECONDS):
                log.warning(
                    "a child ended and is started again",
                    command=self._command,
                    cluster=settings.cluster,
                    exit_code=code,
                )


class Workers:
    """Workers by the rows they leave: those of this server and those on other machines."""

    def __init__(self, adapters: Adapters, children: Sequence[ChildProcess]) -> None:
        self._adapters = adapters
        self.children = tuple(children)

    def wake(self) -> None:
        """Whose cluster the job is for, its worker finds out; workers elsewhere look by themselves."""
        for child in self.children:
            child.wake()

    def state(self) -> WorkerState:
        with self._adapters.store.transaction() as tx:
            last = tx.workers.last_seen_at()
            is_recent = last is not None and tx.now() - last <= WORKER_SILENCE
        if is_recent:
            return "running"
        return "starting" if self.children else "absent"


def _as_environment(settings: ServerSettings) -> dict[str, str]:
    values = json.loads(settings.model_dump_json(exclude_none=True))
    return {
        f"TIDEMILL_{key.upper()}": json.dumps(value) if isinstance(value, dict | list) else str(value)
        for key, value in values.items()
    }


def _announce_nothing() -> None:
    """Whoever started the first process has been told by it."""


def _worker_processes(settings: ServerSettings) -> list[ChildProcess]:
    """One for each cluster: a process has one Spark session."""
    return [
        ChildProcess("work", settings.model_copy(update={"cluster": name}))
        for name in settings.cluster_settings()
    ]


def _sibling_process(settings: ServerSettings, listener: socket.socket) -> ChildProcess:
    """Another process that takes connections from the same socket; the database is what they share."""
    update = {"listener": listener.fileno(), "processes": 1, "with_worker": False}
    return ChildProcess("serve", settings.model_copy(update=update))


def _open_listener(settings: ServerSettings) -> socket.socket:
    if settings.listener is None:
        return _listen(settings.host, settings.port)
    return socket.socket(fileno=settings.listener)


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


def _remove_state_file(settings: ServerSettings) -> None:
    """Another server may have been started under the same root since; its file stays."""
    file = settings.root / STATE_FILE
    with suppress(FileNotFoundError):
        if json.loads(file.read_text())["pid"] == os.getpid():
            file.unlink()
