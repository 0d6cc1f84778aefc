"""How answers leave the server: their head and their body in one piece."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD: Final = b"HTTP/1.1 "
GO_ON: Final = b"HTTP/1.1 100 "


class JoiningTransport:
    """Holds the head of an answer back until its body comes, or until the loop has turned once.

    uvicorn writes one after the other; that would be two system calls, and a client woken twice.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._held and data.startswith(HEAD) and not data.startswith(GO_ON):
            self._held = data
            self._loop.call_soon(self._release)
            return
        joined, self._held = self._held + data, b""
        self._transport.write(joined)

    def close(self) -> None:
        self._release()
        self._transport.close()

    def _release(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)


class JoiningProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", JoiningTransport(transport)))
