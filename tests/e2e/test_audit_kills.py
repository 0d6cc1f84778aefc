"""A server that is killed at any moment has one audit row for every change it committed, and none besides."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event, Timer
from typing import Final
from uuid import uuid4

import httpx

from tests.conftest import RunningServer, start_server

WRITERS: Final = 4
KILLS: Final = 4


def create_namespaces(server: RunningServer, is_over: Event) -> int:
    """Creates and drops until the server is gone; returns how many changes were acknowledged."""
    count = 0
    with httpx.Client(base_url=server.url, timeout=30, trust_env=False) as http:
        while not is_over.is_set():
            name = uuid4().hex
            try:
                assert http.post(f"/v1/namespace/{name}/create", json={}).is_success
                count += 1
                if count % 3 == 0:
                    assert http.post(f"/v1/namespace/{name}/drop", json={}).is_success
            except httpx.TransportError:
                break
    return count


def run_until_killed(root: Path, seconds: float) -> int:
    server, is_over = start_server(root, "--no-worker"), Event()

    def kill() -> None:
        server.process.kill()
        is_over.set()

    timer = Timer(seconds, kill)
    timer.start()
    with ThreadPoolExecutor(WRITERS) as pool:
        done = sum(pool.map(lambda _: create_namespaces(server, is_over), range(WRITERS)))
    timer.join()
    server.process.wait(30)
    assert server.process.stdin is not None
    server.process.stdin.close()
    return done


def test_rows_and_commits_are_the_same_however_a_server_dies(tmp_path: Path) -> None:
    moments = random.Random(43)
    acknowledged = sum(run_until_killed(tmp_path, moments.uniform(0.3, 1.2)) for _ in range(KILLS))
    assert count_created(tmp_path) >= acknowledged > 0


def test_two_server_processes_leave_a_row_for_each_change(tmp_path: Path) -> None:
    servers, is_over = [start_server(tmp_path, "--no-worker") for _ in range(2)], Event()
    timer = Timer(2, is_over.set)
    timer.start()
    with ThreadPoolExecutor(WRITERS) as pool:
        acknowledged = sum(pool.map(create_namespaces, servers * 2, [is_over] * WRITERS))
    timer.join()
    for server in servers:
        server.stop()
    assert count_created(tmp_path) == acknowledged > 0


def count_created(root: Path) -> int:
    """Compares the rows of the audit with the namespaces; returns how many were created."""
    with closing(sqlite3.connect(root / "catalog.db")) as connection:
        present = {name for (name,) in connection.execute("SELECT name FROM namespaces WHERE name != ''")}
        rows = connection.execute("SELECT operation, objects, decision, is_committed FROM audit_events")
        events = [
            (operation.rsplit("/", 1)[1], json.loads(objects), *rest) for operation, objects, *rest in rows
        ]
    assert {tuple(rest) for _, _, *rest in events} == {("allowed", 1)}
    changes = Counter((what, objects[0]["levels"][0]) for what, objects, *_ in events)
    assert set(changes.values()) == {1}
    created = {name for what, name in changes if what == "create"}
    dropped = {name for what, name in changes if what == "drop"}
    assert created - dropped == present
    return len(created)
