"""The servers of a storm: started, killed, stopped and continued, always at the same addresses."""

from __future__ import annotations

import random
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Final

import httpx

from tests.conftest import RunningServer, start_server
from tests.e2e.processes import Process, descendants, find_process
from tests.interop.storm.plan import Faults
from tests.postgres import PostgresCluster

ENDED_SECONDS: Final = 30
# Below those that Linux gives to connections.
PORTS: Final = range(20_000, 32_000)
KILL: Final = "kill"
STOP: Final = "stop"


@dataclass(frozen=True)
class Fault:
    """What was done to a server, from when until it answered again; moments of `time.monotonic`."""

    kind: str
    started: float
    ended: float


def free_port() -> int:
    """Not one that a connection may be given while the server is down."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@dataclass
class Server:
    """A `tidemill serve` at an address that survives its death."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: int = 1
    port: int = field(default_factory=free_port)
    running: RunningServer = field(init=False)
    is_up: bool = False

    def start(self) -> None:
        options = ("--no-worker", "--port", str(self.port), "--processes", str(self.processes))
        self.running = start_server(self.root, *options, **self.environment)
        self.is_up = True

    @property
    def url(self) -> str:
        return self.running.url

    def stop(self) -> None:
        self.is_up = False
        self.running.stop()

    def find_processes(self) -> list[Process]:
        """The supervisor, and those that answer."""
        first = find_process(self.running.process.pid)
        below = descendants(self.running.process.pid)
        return [process for process in (first, *below) if process and "serve" in process.command.split("\0")]

    def kill_and_restart(self, victim: Process) -> None:
        if victim.pid != self.running.process.pid:
            # Its parent starts another one.
            victim.send(signal.SIGKILL)
            return
        everyone = self.find_processes()
        self.is_up = False
        victim.send(signal.SIGKILL)
        self._forget(everyone)
        self.start()

    def _forget(self, everyone: list[Process]) -> None:
        """Waits for all processes: whoever is left holds the port."""
        self.running.process.wait(ENDED_SECONDS)
        with suppress(BrokenPipeError):
            assert self.running.process.stdin is not None
            self.running.process.stdin.close()
        give_up_at = time.monotonic() + ENDED_SECONDS
        for process in everyone:
            while process.is_alive and time.monotonic() < give_up_at:
                time.sleep(0.02)
            if process.is_alive:
                process.send(signal.SIGKILL)


@dataclass(frozen=True)
class Deployment:
    name: str
    root: Path
    servers: list[Server]

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    def urls(self) -> list[str]:
        """Of the servers that should answer; one that is stopped counts among them."""
        return [server.url for server in self.servers if server.is_up]

    def wait_until_healthy(self) -> None:
        for server in self.servers:
            give_up_at = time.monotonic() + ENDED_SECONDS
            while len(server.find_processes()) < server.processes and time.monotonic() < give_up_at:
                time.sleep(0.1)
            assert httpx.get(f"{server.url}/api/v1/health", timeout=ENDED_SECONDS).status_code < 500


class FaultInjector:
    """Kills and stops one server process at a time until told to end."""

    def __init__(self, deployment: Deployment, faults: Faults, seed: int) -> None:
        self._deployment = deployment
        self._plan = faults
        self._chance = random.Random(f"faults {seed}")
        self._is_ending = Event()
        self._thread = Thread(target=self._run, name="faults")
        self._failure: Exception | None = None
        self.faults: list[Fault] = []

    @property
    def has_done_its_least(self) -> bool:
        return len(self.faults) >= self._plan.least

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Leaves all servers running."""
        self._is_ending.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._is_ending.wait(self._chance.uniform(*self._plan.pause_seconds)):
                if len(self.faults) < self._plan.most:
                    self._inject()
        except Exception as failure:  # noqa: BLE001 - raised again where the thread is joined
            self._failure = failure

    def _inject(self) -> None:
        server = self._chance.choice(self._deployment.servers)
        victims = server.find_processes()
        if not victims:
            return
        victim = self._chance.choice(victims)
        kinds = {STOP: self._stop, KILL: server.kill_and_restart}
        # Taking turns, so that also few faults are of both kinds.
        kind = (STOP, KILL)[len(self.faults) % 2]
        started = time.monotonic()
        with suppress(ProcessLookupError):
            kinds[kind](victim)
        self.faults.append(Fault(kind, started, time.monotonic()))

    def _stop(self, victim: Process) -> None:
        victim.send(signal.SIGSTOP)
        try:
            self._is_ending.wait(self._chance.uniform(*self._plan.stop_seconds))
        finally:
            victim.send(signal.SIGCONT)


@contextmanager
def two_servers_on_postgresql(root: Path) -> Iterator[Deployment]:
    cluster = PostgresCluster()
    try:
        cluster.create_database("storm")
        environment = {"TIDEMILL_DATABASE_URL": cluster.url("storm")}
        servers = [Server(root, environment) for _ in range(2)]
        with _started(Deployment("two servers on PostgreSQL", root, servers)) as deployment:
            yield deployment
    finally:
        cluster.stop()


@contextmanager
def two_processes_on_sqlite(root: Path) -> Iterator[Deployment]:
    servers = [Server(root, processes=2)]
    with _started(Deployment("two processes on SQLite", root, servers)) as deployment:
        yield deployment


@contextmanager
def _started(deployment: Deployment) -> Iterator[Deployment]:
    try:
        with ThreadPoolExecutor(len(deployment.servers)) as threads:
            list(threads.map(Server.start, deployment.servers))
        yield deployment
    finally:
        for server in deployment.servers:
            if server.is_up:
                server.stop()
