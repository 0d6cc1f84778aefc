"""Connections of the HTTP server: what a client may send, how fast, and how many there may be.

uvicorn bounds nothing of this for httptools, its fast parser, which also copies a field again with every
piece of it that arrives: a header of 300 MB occupies the event loop for minutes. All of this happens before
anyone has authenticated, so it is checked where the bytes arrive:

- Bytes are counted until they complete a head or are part of a body. That also covers trailers and chunk
  extensions. Too many are answered with 431.
- `sweep` runs once per second over all connections, so that quick requests pay no timer. A head that is not
  complete in time is answered with 408. A body that is too slow is refused by the application, which knows
  the protocol; see `SLOW_BODY`. A client that does not read its response is disconnected.
- Connections above the limit, in all or from one address, are answered with 503 and closed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidemill.protocols.http.addresses import NO_NETWORKS, Networks, address_key
from tidemill.protocols.http.browsers import SECURITY_HEADERS
from tidemill.protocols.http.call import SLOW_BODY

SWEEP_SECONDS: Final = 1.0
# Time for the client to read a refusal. Closing while it still sends would discard the response.
LINGER_SECONDS: Final = 1.0
RESPONSE_START: Final = b"HTTP/1.1 "
REFUSAL_FIELDS: Final = "".join(f"{name.lower()}: {value}\r\n" for name, value in SECURITY_HEADERS)
INTERIM_CONTINUE: Final = b"HTTP/1.1 100 "


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """`stall_seconds` is how long a body or a response may be slower than `bytes_per_second`."""

    header_bytes: int = 64 * 1024
    header_fields: int = 128
    header_seconds: float = 30
    body_seconds: float = 3600
    stall_seconds: float = 30
    bytes_per_second: int = 1024
    connections: int = 4096
    connections_per_address: int = 512
    trusted_proxies: Networks = NO_NETWORKS


class OpenConnections:
    """Counts connections. Those of trusted proxies are not limited by address: they have many clients."""

    def __init__(self, bounds: ConnectionBounds) -> None:
        self._bounds = bounds
        self._by_address: Counter[str] = Counter()
        self._total = 0

    def add(self, address: str) -> str | None:
        """Counts the connection; returns a problem if there are too many."""
        self._by_address[address] += 1
        self._total += 1
        if self._total > self._bounds.connections:
            return "This server has too many connections"
        if self._by_address[address] > self._bounds.connections_per_address:
            return "Your address has too many connections to this server"
        return None

    def remove(self, address: str) -> None:
        self._by_address[address] -= 1
        self._total -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class CoalescingTransport:
    """Holds back the head of a response until its body arrives, or until the next turn of the event loop.

    uvicorn writes them separately, which costs two system calls and wakes the client twice.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._held_head = b""
        self.written_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.written_bytes += len(data)
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


class BoundedProtocol(HttpToolsProtocol):
    """One connection. At any time it waits for a head, for a body, or for neither."""

    def __init__(self, bounds: ConnectionBounds, open_connections: OpenConnections, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._bounds = bounds
        self._open = open_connections
        self._address: str | None = None
        self._is_refused = False
        self._unparsed_bytes = 0
        self._head_since: float | None = None
        self._body_since: float | None = None
        self._body_bytes = 0
        self._sent = (0, 0.0)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", CoalescingTransport(transport)))
        self._head_since = self.loop.time()
        peer = self.client[0] if self.client else ""
        if not self._bounds.trusted_proxies.contains(peer):
            self._address = address_key(peer)
            problem = self._open.add(self._address)
            if problem is not None:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, problem, "retry-after: 1\r\n")
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self._open.remove(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._unparsed_bytes += len(data)
        if self._head_since is None and self._body_since is None:
            self._head_since = self.loop.time()
        super().data_received(data)
        if self._unparsed_bytes > self._bounds.header_bytes:
            self._refuse_head()

    def on_headers_complete(self) -> None:
        self._unparsed_bytes = 0
        self._head_since, self._body_since, self._body_bytes = None, self.loop.time(), 0
        if self._is_refused or not self._is_head_small():
            self._refuse_head()
            return
        super().on_headers_complete()
        # Trailers would otherwise be added to the headers that the application reads.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        self._body_bytes += len(body)
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed_bytes = 0
        self._body_since = None
        if not self._is_refused:
            super().on_message_complete()

    def sweep(self, now: float) -> None:
        self._check_reading(now)
        if self._is_refused or self.transport.is_closing():
            return
        is_answered = self.cycle is None or self.cycle.response_complete
        if self._head_since is not None and now - self._head_since > self._bounds.header_seconds:
            if is_answered:
                self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The request did not arrive in time")
        elif self._is_body_slow(now) and is_answered:
            self.transport.close()
        elif self._is_body_slow(now) and not self.pipeline:
            self.cycle.scope["state"][SLOW_BODY] = True
            self.cycle.message_event.set()

    def _is_body_slow(self, now: float) -> bool:
        if self._body_since is None:
            return False
        elapsed = now - self._body_since
        expected = (elapsed - self._bounds.stall_seconds) * self._bounds.bytes_per_second
        return elapsed > self._bounds.body_seconds or (
            elapsed > self._bounds.stall_seconds and self._body_bytes < expected
        )

    def _check_reading(self, now: float) -> None:
        """Disconnects a client that does not read; what it is sent would stay in memory for ever."""
        unsent = self.transport.get_write_buffer_size()
        sent = cast("CoalescingTransport", self.transport).written_bytes - unsent
        before, since = self._sent
        expected = self._bounds.stall_seconds * self._bounds.bytes_per_second
        if not unsent or sent - before >= expected:
            self._sent = sent, now
        elif now - since > self._bounds.stall_seconds:
            self.transport.abort()

    def _is_head_small(self) -> bool:
        if len(self.headers) > self._bounds.header_fields:
            return False
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        return size <= self._bounds.header_bytes

    def _refuse_head(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"The path and the headers may have {self._bounds.header_bytes:,} bytes"
            f" and {self._bounds.header_fields} fields",
        )

    def _refuse(self, status: HTTPStatus, message: str, fields: str = "") -> None:
        """Answers in plain text, like uvicorn itself: the protocol of the request is not known yet."""
        if self._is_refused:
            return
        self._is_refused = True
        self._unset_keepalive_if_required()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n{fields}{REFUSAL_FIELDS}"
            "content-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(message)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(f"{head}{message}".encode())
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


async def sweep_connections(connections: Callable[[], Iterable[Any]]) -> None:
    """Checks all connections once per second, until it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        for connection in list(connections()):
            if isinstance(connection, BoundedProtocol):
                connection.sweep(loop.time())
