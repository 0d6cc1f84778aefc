"""A proxy between a foreign client and the server that passes every byte on and notes what was said.

Each connection of the client has one connection to the server. Bytes are passed on as they come, in both
directions, `Host` included, so the client sees the server as it is: keep-alive, chunked bodies,
`100 Continue`. Requests and answers are told apart on the side and paired in their order on the connection.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

HEAD_BYTES: Final = 1 << 20
PIECE_BYTES: Final = 1 << 16
BODILESS: Final = frozenset({204, 304})
LINGER_SECONDS: Final = 30


@dataclass(frozen=True)
class Message:
    """A request or an answer; the body without chunks and compression."""

    first_line: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def status(self) -> int:
        return int(self.first_line.split(" ")[1])


@dataclass(frozen=True)
class Exchange:
    request: Message
    answer: Message

    @property
    def method(self) -> str:
        return self.request.first_line.split(" ")[0]

    @property
    def target(self) -> str:
        return self.request.first_line.split(" ")[1]


class Listener(Protocol):
    """Told of a request before the server gets it, of an answer before the client gets it, and of both."""

    def asked(self) -> object: ...

    def answering(self) -> None: ...

    def answered(self, what_was_asked: Any, exchange: Exchange) -> None: ...


class _Stream:
    """One direction of a connection: what is read from one side is written to the other at once."""

    def __init__(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        self._source, self._sink = source, sink

    async def head(self) -> tuple[str, dict[str, str], bytes] | None:
        try:
            raw = await self._source.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first_line, *lines = raw.decode("latin-1").split("\r\n")
        parted = (line.partition(":") for line in lines if line)
        return first_line, {name.strip().lower(): value.strip() for name, _, value in parted}, raw

    async def pass_on(self, piece: bytes) -> bytes:
        self._sink.write(piece)
        await self._sink.drain()
        return piece

    async def body(self, headers: Mapping[str, str], *, until_closed: bool) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return b"".join([piece async for piece in self._chunks()])
        if "content-length" in headers:
            return await self._exactly(int(headers["content-length"]))
        return await self._rest() if until_closed else b""

    async def _exactly(self, size: int) -> bytes:
        pieces = []
        while size:
            piece = await self._source.read(min(size, PIECE_BYTES))
            if not piece:
                raise ConnectionError("the connection ended within a body")
            pieces.append(await self.pass_on(piece))
            size -= len(piece)
        return b"".join(pieces)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            line = await self.pass_on(await self._source.readuntil(b"\r\n"))
            size = int(line.split(b";")[0], 16)
            yield await self._exactly(size)
            if size == 0:
                while await self.pass_on(await self._source.readuntil(b"\r\n")) != b"\r\n":
                    pass
                return
            await self.pass_on(await self._source.readexactly(2))

    async def _rest(self) -> bytes:
        pieces = []
        while piece := await self._source.read(PIECE_BYTES):
            pieces.append(await self.pass_on(piece))
        return b"".join(pieces)


class _Connection:
    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._waiting: asyncio.Queue[tuple[str, object, asyncio.Future[Message]]] = asyncio.Queue()

    async def requests(self, stream: _Stream) -> None:
        while (head := await stream.head()) is not None:
            first_line, headers, raw = head
            whole: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
            self._waiting.put_nowait((first_line.split(" ")[0], self._listener.asked(), whole))
            await stream.pass_on(raw)
            body = await stream.body(headers, until_closed=False)
            whole.set_result(Message(first_line, headers, plain(headers, body)))

    async def answers(self, stream: _Stream) -> None:
        while (head := await stream.head()) is not None:
            first_line, headers, raw = head
            self._listener.answering()
            await stream.pass_on(raw)
            status = int(first_line.split(" ")[1])
            # 100 Continue is no answer yet.
            if status < 200:
                continue
            method, what_was_asked, whole = await self._waiting.get()
            has_body = method != "HEAD" and status not in BODILESS
            body = await stream.body(headers, until_closed=True) if has_body else b""
            answer = Message(first_line, headers, plain(headers, body))
            self._listener.answered(what_was_asked, Exchange(await whole, answer))


def plain(headers: Mapping[str, str], body: bytes) -> bytes:
    match headers.get("content-encoding", "").lower():
        case "gzip" if body:
            return gzip.decompress(body)
        case "deflate" if body:
            return zlib.decompress(body)
        case _:
            return body


@contextmanager
def recording_proxy(server_url: str, listener: Listener) -> Iterator[str]:
    """The address of a proxy in front of the server, as long as the block runs."""
    target = urlsplit(server_url)
    loop = asyncio.new_event_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, to_server = await asyncio.open_connection(target.hostname, target.port, limit=HEAD_BYTES)
        connection = _Connection(listener)
        ways = [
            asyncio.create_task(connection.requests(_Stream(reader, to_server))),
            asyncio.create_task(connection.answers(_Stream(upstream, writer))),
        ]
        # The end of the block ends connections that are still open.
        with suppress(ConnectionError, asyncio.CancelledError):
            # A client that has sent its last request may still wait for the answer.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            to_server.write_eof() if ways[0].done() else writer.write_eof()
            await asyncio.wait(ways, timeout=LINGER_SECONDS)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (to_server, writer):
            end.close()

    listening = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, limit=HEAD_BYTES))
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        listening.close()
        loop.run_until_complete(_cancel_others())
        loop.close()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
