"""Sends the head and the body of a response in one write."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

RESPONSE_START: Final = b"HTTP/1.1 "
INTERIM_CONTINUE: Final = b"HTTP/1.1 100 "


class CoalescingTransport:
    """Holds back the head of a response until its body arrives, or until the next turn of the event loop.

    uvicorn writes them separately, which costs two system calls and wakes the client twice.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._held_head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._held_head and data.startswith(RESPONSE_START) and not data.startswith(INTERIM_CONTINUE):
            self._held_head = data
            self._loop.call_soon(self._flush)
            return
        combined, self._held_head = self._held_head + data, b""
        self._transport.write(combined)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held_head:
            head, self._held_head = self._held_head, b""
            self._transport.write(head)


class CoalescingProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", CoalescingTransport(transport)))
