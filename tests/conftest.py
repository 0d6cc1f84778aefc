"""What tests over a socket share: one real server with its worker for the whole run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

import tidemill
from tests.object_store import ObjectStore, running_object_store
from tests.operations import driven_by
from tests.security.counting import AttackReport
from tests.specification.reporting import SpecificationReport

# Lance reads this when it is imported, which nothing has done yet.
os.environ.setdefault("LANCE_LOG", "error")
# No test fails because the machine is busy.
settings.register_profile("tidemill", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
settings.load_profile("tidemill")
SERVE = [sys.executable, "-m", "tidemill", "serve", "--port", "0", "--exit-with-stdin"]
# Short enough for tests that kill a worker to see the job taken over.
LEASE = {
    "TIDEMILL_LEASE_SECONDS": "4",
    "TIDEMILL_HEARTBEAT_SECONDS": "1",
    "TIDEMILL_CANCEL_POLL_SECONDS": "0.2",
}
# Functions of tests count their calls in files, which a sandbox does not have.
TRUSTED = {"TIDEMILL_FUNCTION_ISOLATION": "trusted"}


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SpecificationReport(), "specification report")
    config.pluginmanager.register(AttackReport(), "attack report")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A misspelt operation stops the run instead of leaving the documented table."""
    for item in items:
        driven_by(item)


@dataclass(frozen=True)
class RunningServer:
    """A `tidemill serve` process; it ends when its standard input is closed."""

    url: str
    root: Path
    process: subprocess.Popen[str]

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def start_server(root: Path, *options: str, **environment: str) -> RunningServer:
    root.mkdir(parents=True, exist_ok=True)
    with (root / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [*SERVE, "--root", str(root), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **LEASE, **TRUSTED, **environment},
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("Tidemill is ready at http"):
        process.kill()
        raise AssertionError(f"the server did not start: {line!r}\n{(root / 'server.log').read_text()}")
    process.stdout.close()
    return RunningServer(line.split()[-1], root, process)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start_server(tmp_path_factory.mktemp("lake"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    with running_object_store() as running:
        yield running


@pytest.fixture(scope="session")
def lake(server: RunningServer) -> Iterator[tidemill.Lake]:
    with tidemill.connect(server.url) as connected:
        yield connected


@pytest.fixture
def namespace(lake: tidemill.Lake) -> str:
    """A namespace of the test's own."""
    name = f"n{uuid4().hex[:12]}"
    lake.create_namespace(name)
    return name
