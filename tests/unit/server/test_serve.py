"""The server process and its children: what they are told."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tidemill.server.serve import _as_environment, _listen, _open_listener, _worker_processes
from tidemill.server.settings import ServerSettings, load_settings

CLUSTERS = {"gpu": {"master": "spark://gpu:7077", "config": {"spark.executor.memory": "8g"}, "slots": 16}}


def as_a_child_reads(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> ServerSettings:
    for name, value in _as_environment(settings).items():
        monkeypatch.setenv(name, value)
    return load_settings()


def test_a_child_has_exactly_the_settings_of_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(
        root=tmp_path,
        allowed_locations=(tmp_path / "one", tmp_path / "with, comma"),
        function_command_prefix=("nice", "-n", "10"),
        spark_config={"spark.executor.memory": "1g"},
        spark_clusters=CLUSTERS,
        cluster="gpu",
        with_worker=False,
        function_isolation="none",
        function_memory_bytes=1 << 30,
    )
    assert as_a_child_reads(settings, monkeypatch) == settings


def test_a_child_has_the_defaults_when_nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings()
    assert as_a_child_reads(settings, monkeypatch) == settings


def test_every_cluster_has_a_worker_of_its_own() -> None:
    workers = _worker_processes(load_settings(spark_clusters=CLUSTERS))
    assert [worker.settings.cluster for worker in workers] == ["default", "gpu"]


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_answers_on_a_kept_connection_are_not_held_back(*, is_handed_over: bool) -> None:
    """Nagle's algorithm would hold each of them until the client's delayed acknowledgement, after 40 ms."""
    listener = _listen("127.0.0.1", 0)
    if is_handed_over:
        listener = _open_listener(load_settings(listener=listener.detach()))
    assert asyncio.run(_sends_at_once(listener))


async def _sends_at_once(listener: socket.socket) -> bool:
    found: asyncio.Queue[int] = asyncio.Queue()

    async def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        found.put_nowait(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(accepted, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        is_set = await found.get()
        writer.close()
        await writer.wait_closed()
    return bool(is_set)
