"""Several processes behind one port are one server, which survives the death of each."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import RunningServer, start_server
from tests.e2e.processes import Process, descendants


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    running = start_server(tmp_path / "lake", "--no-worker", "--processes", "3")
    yield running
    running.stop()


def servers(server: RunningServer, count: int) -> list[Process]:
    """The processes that answer requests; the first is the parent of the others."""
    deadline = time.monotonic() + 60
    while True:
        below = [one for one in descendants(server.process.pid) if "serve" in one.command.split("\0")]
        if len(below) == count:
            return sorted(below, key=lambda one: one.parent != server.process.pid)
        assert time.monotonic() < deadline, below
        time.sleep(0.1)


def test_what_one_has_written_all_have(server: RunningServer) -> None:
    started = servers(server, 3)
    for number in range(60):
        # A connection of its own for each, so that any of the processes may get it.
        assert httpx.post(f"{server.url}/v1/namespace/n{number:02d}/create", json={}).status_code == 200
        listed = httpx.get(f"{server.url}/v1/namespace/$/list").json()["namespaces"]
        assert len(listed) == number + 1
    server.stop()
    assert [process for process in started if process.is_alive] == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_a_server_that_dies_is_replaced_while_its_clients_wait(
    tmp_path: Path, number: signal.Signals
) -> None:
    server = start_server(tmp_path / "lake", "--no-worker")
    assert httpx.post(f"{server.url}/v1/namespace/kept/create", json={}).status_code == 200
    (first,) = servers(server, 1)
    first.send(number)
    while first.is_alive:
        time.sleep(0.01)
    listed = httpx.get(f"{server.url}/v1/namespace/$/list", timeout=120)
    assert listed.json()["namespaces"] == ["kept"]
    (second,) = servers(server, 1)
    assert second != first
    server.stop()
    assert server.process.returncode == 0
    assert not second.is_alive
    assert not (server.root / "server.json").exists()


def test_a_signal_to_stop_stops_the_whole_server(tmp_path: Path) -> None:
    server = start_server(tmp_path / "lake", "--no-worker")
    (first,) = servers(server, 1)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == -signal.SIGTERM
    assert not first.is_alive
    server.stop()


def test_the_server_dies_with_its_supervisor(tmp_path: Path) -> None:
    server = start_server(tmp_path / "lake", "--no-worker")
    (first,) = servers(server, 1)
    server.process.kill()
    server.process.wait()
    deadline = time.monotonic() + 60
    while first.is_alive:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.stop()


def test_a_server_that_cannot_start_says_why_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "tidemill", "serve", "--no-worker", "--root", str(tmp_path)]
        ended = subprocess.run(
            [*command, "--port", port], capture_output=True, text=True, timeout=120, check=False
        )
    assert ended.returncode == 1
    assert ended.stderr.count(f"Error: port: {port} on 127.0.0.1 cannot be used") == 1
    assert "restarting" not in ended.stderr
