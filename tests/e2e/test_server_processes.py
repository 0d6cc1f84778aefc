"""Several processes behind one port are one server."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.conftest import RunningServer, start_server
from tests.e2e.processes import Process, descendants


@pytest.fixture
def server(tmp_path: Path) -> RunningServer:
    return start_server(tmp_path / "lake", "--no-worker", "--processes", "3")


def siblings(server: RunningServer, count: int) -> list[Process]:
    deadline = time.monotonic() + 60
    while len(found := descendants(server.process.pid)) != count:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def test_what_one_has_written_all_have(server: RunningServer) -> None:
    started = siblings(server, 2)
    for number in range(60):
        # A connection of its own for each, so that any of the processes may get it.
        assert httpx.post(f"{server.url}/v1/namespace/n{number:02d}/create", json={}).status_code == 200
        listed = httpx.get(f"{server.url}/v1/namespace/$/list").json()["namespaces"]
        assert len(listed) == number + 1
    server.stop()
    assert [process for process in started if process.is_alive] == []
