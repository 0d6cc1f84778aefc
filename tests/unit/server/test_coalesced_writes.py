"""Heads and bodies of answers leave together, and nothing is held back for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from tidemill.server.connections import CoalescingTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Written:
    """Stands for the socket's transport."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.pieces.append(data)

    def close(self) -> None:
        self.is_closed = True


def written(use: Callable[[CoalescingTransport], None], turns: int = 0) -> Written:
    socket = Written()

    async def run() -> None:
        use(CoalescingTransport(cast(asyncio.Transport, socket)))
        for _ in range(turns):
            await asyncio.sleep(0)

    asyncio.run(run())
    return socket


def test_a_head_waits_for_its_body() -> None:
    def answer(transport: CoalescingTransport) -> None:
        transport.write(HEAD)
        transport.write(b"{}")
        transport.write(HEAD)
        transport.write(b"[]")

    assert written(answer).pieces == [HEAD + b"{}", HEAD + b"[]"]


def test_a_head_without_a_body_goes_when_the_loop_turns() -> None:
    assert written(lambda transport: transport.write(HEAD), turns=2).pieces == [HEAD]


def test_closing_sends_what_was_held() -> None:
    def answer(transport: CoalescingTransport) -> None:
        transport.write(HEAD)
        transport.close()

    socket = written(answer)
    assert (socket.pieces, socket.is_closed) == ([HEAD], True)


def test_a_client_that_waits_to_go_on_is_told_at_once() -> None:
    go_on = b"HTTP/1.1 100 Continue\r\n\r\n"

    def answer(transport: CoalescingTransport) -> None:
        transport.write(go_on)
        transport.write(HEAD)
        transport.write(b"{}")

    assert written(answer).pieces == [go_on, HEAD + b"{}"]


def test_chunks_follow_each_other() -> None:
    def answer(transport: CoalescingTransport) -> None:
        for piece in (HEAD, b"first", b"second"):
            transport.write(piece)

    assert written(answer).pieces == [HEAD + b"first", b"second"]
