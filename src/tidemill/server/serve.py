"""The server process: serves HTTP, and by default runs a worker for each cluster as a child process.

With `processes` above 1 it also starts sibling servers, which accept connections from the same socket and
share nothing but the database. Children get all settings through their environment. The server restarts
children that die and stops them when it ends. It is restarted itself by its `supervisor`.

The standard input of a child is a pipe from the server. It has two uses: a write wakes the worker when a job
was submitted, and the end of it tells the child to stop. The operating system closes the pipe even if the
server is killed, so no child outlives its server and keeps the port or the Spark session.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from threading import Event, Thread
from typing import Final, cast

import structlog
import uvicorn
from starlette.types import ASGIApp

from tidemill.errors import InvalidInput
from tidemill.lance.evaluation.evaluator import InProcess
from tidemill.lance.evaluation.pool import QueryProcesses
from tidemill.protocols.app import create_app
from tidemill.protocols.http.browsers import LOOPBACK, SECURITY_HEADERS, TrustedHosts
from tidemill.protocols.http.call import Limits
from tidemill.server.audit_trail import AuditTrail
from tidemill.server.bootstrap import Adapters, build_operations, open_adapters
from tidemill.server.connections import BoundedProtocol, ConnectionBounds, OpenConnections, sweep_connections
from tidemill.server.health import WorkerState
from tidemill.server.processes import GRACE_SECONDS, configure_logs, stop_with_stdin
from tidemill.server.settings import ServerSettings
from tidemill.server.supervisor import Supervision
from tidemill.server.tls import STRICT_TRANSPORT, Certificates, TlsHandshake
from tidemill.storage.local import LocalTableFiles
from tidemill.storage.s3_client import missing_variables

STATE_FILE: Final = "server.json"
RESTART_SECONDS: Final = 1.0
# lancedb polls a job every 5 seconds on one connection, and fails if it is closed at that moment.
KEEP_ALIVE_SECONDS: Final = 75
SHUTDOWN_SECONDS: Final = 5
# Beside those of connections: of the database, of tables and of children.
OTHER_FILES: Final = 1024
WORKER_SILENCE: Final = timedelta(seconds=10)

log = structlog.get_logger("tidemill.server")


def serve(settings: ServerSettings, supervision: Supervision | None = None) -> None:
    """Serves until it is told to stop; prints one line when it is ready for the first time."""
    configure_logs(settings.log_level)
    if settings.host not in LOOPBACK and not settings.has_authentication:
        raise InvalidInput(
            "host", f"{settings.host} is not a loopback address, so 'clients' or 'oidc_issuers' must be set"
        )
    certificates = open_certificates(settings)
    evaluator = _open_evaluator(settings)
    adapters = open_adapters(settings, evaluator=evaluator)
    if settings.processes > 1 and not adapters.store.is_shared:
        raise InvalidInput("processes", "must be 1 with an in-memory database, which processes cannot share")
    workers = Workers(adapters, _worker_processes(settings) if settings.with_worker else ())
    listener = _open_listener(settings, supervision)
    children = [
        *workers.children,
        *(_sibling_process(settings, listener) for _ in range(settings.processes - 1)),
    ]
    bounds = settings.connection_bounds()
    _allow_open_files(bounds.connections)
    limits = Limits(
        json_bytes=settings.max_json_bytes,
        arrow_bytes=settings.max_arrow_bytes,
        decoded_arrow_bytes=settings.max_decoded_arrow_bytes,
        runs_quick_on_loop=adapters.store.is_local and isinstance(adapters.files, LocalTableFiles),
        trusted_proxies=bounds.trusted_proxies,
        trusted_hosts=None if settings.has_authentication else TrustedHosts(settings.allowed_hosts),
    )
    operations = build_operations(adapters, workers, workers.wake)
    audit = AuditTrail(adapters.store, settings.audit_refusals_per_minute)
    app = create_app(operations, limits, adapters.authentication.caller_of, audit)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"{'http' if certificates is None else 'https'}://{host}:{listener.getsockname()[1]}"
    is_first = settings.listener is None
    server = AnnouncingServer(
        _config(app, bounds, certificates),
        (lambda: _announce(settings, url, listener, supervision)) if is_first else _announce_nothing,
    )
    if supervision is not None:
        supervision.watch(lambda: setattr(server, "should_exit", True))
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
        audit.close()
        evaluator.close()
        adapters.directory.close()
        adapters.store.close()


def _open_evaluator(settings: ServerSettings) -> QueryProcesses | InProcess:
    bounds = settings.query_bounds()
    # They open tables in the object store themselves.
    variables = {**os.environ, **(missing_variables(os.environ) if settings.has_object_store else {})}
    evaluator = InProcess() if bounds is None else QueryProcesses(bounds, variables)
    evaluator.start()
    return evaluator


def _allow_open_files(connections: int) -> None:
    """Raises the soft limit of open files, which is often 1024, so that connections do not use it up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def open_certificates(settings: ServerSettings) -> Certificates | None:
    """None if the server speaks plain HTTP."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return Certificates(settings.tls_certificate, settings.tls_key)


def _config(app: ASGIApp, bounds: ConnectionBounds, certificates: Certificates | None) -> uvicorn.Config:
    open_connections, headers = OpenConnections(bounds), list(SECURITY_HEADERS)
    protocol: Callable[..., asyncio.Protocol] = partial(BoundedProtocol, bounds, open_connections)
    if certificates is not None:
        protocol = partial(TlsHandshake, certificates, bounds, open_connections, protocol)
        headers.append(STRICT_TRANSPORT)
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=cast("type[asyncio.Protocol]", protocol),
        ws="none",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        headers=headers,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        # A client that watches a job would otherwise delay the shutdown until the job ends.
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


class AnnouncingServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._sweeping = asyncio.create_task(sweep_connections(lambda: self.server_state.connections))
        self._announce()


class ChildProcess:
    """A child of the server: restarted when it dies, and stopped when the server ends for any reason."""

    def __init__(self, command: str, settings: ServerSettings) -> None:
        self._command = command
        self.settings = settings
        self._is_stopping = Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._supervisor = Thread(target=self._supervise, name=f"{command} supervisor", daemon=True)

    def start(self) -> None:
        self._supervisor.start()

    def wake(self) -> None:
        """Makes the worker look for jobs now instead of at its next poll."""
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
            # Settings are passed through the environment, so that the child has exactly ours.
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
                    "child process ended; restarting it",
                    command=self._command,
                    cluster=settings.cluster,
                    exit_code=code,
                )


class Workers:
    """The workers of this server, and the liveness of all workers, as recorded in the database."""

    def __init__(self, adapters: Adapters, children: Sequence[ChildProcess]) -> None:
        self._adapters = adapters
        self.children = tuple(children)

    def wake(self) -> None:
        """Wakes all workers of this server, whatever cluster the job is for. Others find it by polling."""
        for child in self.children:
            child.wake()

    def state(self) -> WorkerState:
        with self._adapters.store.reading() as tx:
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
    """For sibling processes: only the first one announces the server."""


def _worker_processes(settings: ServerSettings) -> list[ChildProcess]:
    """One worker per cluster, because a process has only one Spark session."""
    return [
        ChildProcess("work", settings.model_copy(update={"cluster": name}))
        for name in settings.cluster_settings()
    ]


def _sibling_process(settings: ServerSettings, listener: socket.socket) -> ChildProcess:
    """Another server process that accepts connections from the same socket."""
    update = {"listener": listener.fileno(), "processes": 1, "with_worker": False}
    return ChildProcess("serve", settings.model_copy(update=update))


def _open_listener(settings: ServerSettings, supervision: Supervision | None = None) -> socket.socket:
    if supervision is not None and supervision.listener is not None:
        return supervision.listener
    if settings.listener is None:
        return _listen(settings.host, settings.port)
    return socket.socket(fileno=settings.listener)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only for sockets created with IPPROTO_TCP. Otherwise every
    # response on a kept-alive connection waits 40 ms for a delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        raise InvalidInput("port", f"{port} on {host} cannot be used: {error.strerror}") from error
    return listener


def _announce(
    settings: ServerSettings, url: str, listener: socket.socket, supervision: Supervision | None
) -> None:
    """Publishes the URL of the server in the state file and, unless it is a restart, on standard output."""
    state = json.dumps({"url": url, "pid": os.getpid()})
    staged = settings.root / f"{STATE_FILE}.{os.getpid()}"
    staged.write_text(state)
    staged.replace(settings.root / STATE_FILE)
    is_restart = supervision is not None and supervision.listener is not None
    if supervision is not None:
        supervision.report_ready(listener)
    if not is_restart:
        sys.stdout.write(f"Tidemill is ready at {url}\n")
        sys.stdout.flush()


def _remove_state_file(settings: ServerSettings) -> None:
    """Removes the state file, unless a newer server with the same root has replaced it."""
    file = settings.root / STATE_FILE
    with suppress(FileNotFoundError):
        if json.loads(file.read_text())["pid"] == os.getpid():
            file.unlink()
