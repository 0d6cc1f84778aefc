"""The load generator: sends prepared requests over persistent connections and times the responses."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

NO_LIMIT: Final = 3600.0
HEAD_END: Final = b"\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
WITHOUT_BODY: Final = ("GET", "HEAD")
OK: Final = frozenset({200})


def request_bytes(
    method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
) -> bytes:
    content = b"" if method in WITHOUT_BODY else json.dumps(body).encode()
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\n{more}"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    head: bytes
    content: bytes
    seconds: float

    @property
    def body(self) -> bytes:
        return _unchunked(self.content) if _is_chunked(self.head.lower()) else self.content

    def header(self, name: str) -> str:
        """The value of the header as sent; empty if there is none."""
        start = self.head.lower().find(f"\r\n{name}:".encode())
        if start < 0:
            return ""
        return self.head[start + 2 :].partition(b"\r\n")[0].partition(b":")[2].strip().decode()


class Wire:
    """One persistent connection: sends prepared bytes and knows when a response is complete."""

    def __init__(self, port: int, accepted: Collection[int] = OK) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._accepted = accepted
        self._received = b""
        self._body = 0
        self._end: int | None = None
        self._has_body = True
        self._sent_at = 0.0

    def send(self, request: bytes) -> None:
        self._has_body = not request.startswith(b"HEAD ")
        self._sent_at = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> Answer | None:
        """The response to the last request; None while it is incomplete."""
        arrived = self.socket.recv(1 << 18)
        if not arrived:
            raise SystemExit(f"the server closed the connection after {self._received[:600]!r}")
        self._received += arrived
        if not self._body and not self._read_head():
            return None
        if self._end is None:
            if not self._received.endswith(LAST_CHUNK):
                return None
        elif len(self._received) < self._end:
            return None
        took = time.perf_counter() - self._sent_at
        if int(self._received[9:12]) not in self._accepted:
            raise SystemExit(f"refused: {self._received[:600].decode(errors='replace')}")
        head, content = self._received[: self._body - len(HEAD_END)], self._received[self._body :]
        self._received, self._body = b"", 0
        return Answer(int(head[9:12]), head, content, took)

    def _read_head(self) -> bool:
        """Whether the head has arrived; finds where the response ends (None: at its last chunk)."""
        head = self._received.find(HEAD_END)
        if head < 0:
            return False
        self._body = head + len(HEAD_END)
        lines = self._received[:head].lower()
        if self._has_body and _is_chunked(lines):
            self._end = None
        else:
            length = lines.partition(b"content-length:")[2].partition(b"\r\n")[0]
            self._end = self._body + (int(length or 0) if self._has_body else 0)
        return True


def drive(
    port: int,
    lanes: Sequence[Iterator[bytes]],
    seconds: float,
    seen: Callable[[int, Answer], None] | None = None,
    accepted: Collection[int] = OK,
) -> float:
    """Requests per second with one connection per lane; each sends its next request after a response."""
    poll, wires = select.epoll(), {}
    for number, lane in enumerate(lanes):
        wire = Wire(port, accepted)
        wires[wire.socket.fileno()] = (number, wire, lane)
        poll.register(wire.socket, select.EPOLLIN)
    answered, busy = 0, 0
    began = time.perf_counter()
    for _, wire, lane in wires.values():
        if (request := next(lane, None)) is not None:
            wire.send(request)
            busy += 1
    while busy:
        for descriptor, _ in poll.poll():
            number, wire, lane = wires[descriptor]
            if (answer := wire.receive()) is None:
                continue
            answered += 1
            if seen is not None:
                seen(number, answer)
            request = next(lane, None) if time.perf_counter() < began + seconds else None
            if request is None:
                busy -= 1
            else:
                wire.send(request)
    took = time.perf_counter() - began
    for _, wire, _ in wires.values():
        wire.socket.close()
    poll.close()
    return answered / took


def _is_chunked(lower_head: bytes) -> bool:
    return b"transfer-encoding: chunked" in lower_head


def _unchunked(content: bytes) -> bytes:
    parts = []
    while content:
        size, _, rest = content.partition(b"\r\n")
        length = int(size, 16)
        parts.append(rest[:length])
        content = rest[length + 2 :] if length else b""
    return b"".join(parts)
