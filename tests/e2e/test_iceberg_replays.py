"""Servers that are killed while they work: a request that is sent again with its key has one effect."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import RunningServer, start_server
from tests.iceberg_requests import new_key, new_table, new_view, number_of, with_properties

CLIENTS = 4
COMMITS = 12
KILLS = 2
GIVE_UP_SECONDS = 120


class Killable:
    """A server on a port of its own that is killed again and again, and started again on it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._server = start_server(root, "--no-worker")
        self.url = self._server.url
        self._again = ("--no-worker", "--port", self.url.rpartition(":")[2])

    def kill(self) -> None:
        process = self._server.process
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        self._server = start_server(self._root, *self._again)

    @property
    def running(self) -> RunningServer:
        return self._server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Killable]:
    killable = Killable(tmp_path / "lake")
    yield killable
    killable.running.stop()


def send_until_answered(url: str, path: str, body: Any) -> httpx.Response:
    """As a careful client does it: one key, sent again until there is an answer, twice over."""
    headers = {"Idempotency-Key": new_key()}
    answers: list[httpx.Response] = []
    give_up_at = time.monotonic() + GIVE_UP_SECONDS
    while len(answers) < 2:
        assert time.monotonic() < give_up_at
        try:
            answer = httpx.post(f"{url}{path}", json=body, headers=headers, timeout=30)
        except httpx.TransportError:
            time.sleep(0.05)
            continue
        if answer.status_code < 500:
            answers.append(answer)
    first, second = answers
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    return first


def test_commits_through_killed_servers_happen_once_each(server: Killable) -> None:
    base = "/iceberg/v1/namespaces"
    with httpx.Client(base_url=server.url) as http:
        assert http.post(base, json={"namespace": ["n"]}).status_code == 200
        assert http.post(f"{base}/n/tables", json=new_table("t")).status_code == 200
        assert http.post(f"{base}/n/views", json=new_view("v")).status_code == 200

    def commit(client: int) -> list[httpx.Response]:
        path = f"{base}/n/{'tables/t' if client % 2 else 'views/v'}"
        return [
            send_until_answered(server.url, path, with_properties(**{f"c{client}-{number}": "x"}))
            for number in range(COMMITS)
        ]

    is_over = threading.Event()

    def kill_now_and_then() -> None:
        for _ in range(KILLS):
            if not is_over.wait(0.7):
                server.kill()

    with ThreadPoolExecutor(CLIENTS + 1) as threads:
        killer = threads.submit(kill_now_and_then)
        answers = [answer for given in threads.map(commit, range(CLIENTS)) for answer in given]
        is_over.set()
        killer.result()
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["metadata-location"] for answer in answers}) == CLIENTS * COMMITS
    for kind in ("tables/t", "views/v"):
        loaded = httpx.get(f"{server.url}{base}/n/{kind}").json()
        assert number_of(loaded["metadata-location"]) == CLIENTS // 2 * COMMITS
        assert len(loaded["metadata"]["properties"]) >= CLIENTS // 2 * COMMITS


def test_a_key_is_remembered_by_the_server_that_comes_after(server: Killable) -> None:
    base = "/iceberg/v1/namespaces"
    key = {"Idempotency-Key": new_key()}
    assert httpx.post(f"{server.url}{base}", json={"namespace": ["n"]}).status_code == 200
    body = new_view("v")
    made = httpx.post(f"{server.url}{base}/n/views", json=body, headers=key)
    assert made.status_code == 200
    assert httpx.delete(f"{server.url}{base}/n/views/v").status_code == 204
    server.kill()
    again = httpx.post(f"{server.url}{base}/n/views", json=body, headers=key)
    assert (again.status_code, again.json()) == (200, made.json())
    assert httpx.head(f"{server.url}{base}/n/views/v").status_code == 404
