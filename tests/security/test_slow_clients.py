"""Ten thousand clients that never finish their requests: `make security`, as it takes half a minute."""

from __future__ import annotations

import json
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import RunningServer, start_server
from tests.e2e.processes import serving
from tests.security.counting import count_attack
from tests.security.test_bounds_before_authentication import HEALTH, connection, sent

SLOW_CLIENTS: Final = 10_000
ADDRESSES: Final = 40
MAX_CONNECTIONS: Final = 4096
HEADER_SECONDS: Final = 5
MEMORY_BYTES: Final = 400 << 20

pytestmark = pytest.mark.deep


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    running = start_server(
        tmp_path,
        "--no-worker",
        TIDEMILL_CLIENTS=json.dumps({"ada": {"secret": "correct"}}),
        TIDEMILL_HEADER_SECONDS=str(HEADER_SECONDS),
        TIDEMILL_MAX_CONNECTIONS=str(MAX_CONNECTIONS),
    )
    yield running
    running.stop()


@pytest.fixture
def many_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < SLOW_CLIENTS + 1000:
        pytest.skip(f"this test opens {SLOW_CLIENTS} connections; at most {limits[1]} files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (SLOW_CLIENTS + 1000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def resident_bytes(process: int) -> int:
    """Of the process and its children, which serve if it only supervises."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize() + sum(resident_bytes(int(child)) for child in children)


def is_served(server: RunningServer) -> bool:
    with suppress(OSError):
        return sent(server, HEALTH, b"\r\n", source="127.0.9.9") == 200
    return False


@pytest.mark.usefixtures("many_files")
def test_ten_thousand_slow_clients_do_not_stop_the_server(server: RunningServer) -> None:
    before, most = resident_bytes(serving(server.process.pid).pid), 0
    with ExitStack() as stack:
        for number in range(SLOW_CLIENTS):
            with suppress(OSError):
                opened = stack.enter_context(connection(server, f"127.0.1.{number % ADDRESSES + 1}"))
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                opened.sendall(HEALTH)
            if number % 500 == 0:
                most = max(most, resident_bytes(serving(server.process.pid).pid))
        deadline = time.monotonic() + 10 * HEADER_SECONDS
        # They are disconnected when their time is up, while all of them still hold on.
        while not (has_recovered := is_served(server)) and time.monotonic() < deadline:
            time.sleep(0.2)
    count_attack("slow clients", times=SLOW_CLIENTS)
    count_attack("slow clients", got_through=not has_recovered, times=0)
    assert has_recovered
    assert most - before < MEMORY_BYTES
    assert server.process.poll() is None
