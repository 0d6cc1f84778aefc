"""The messages between a server and a query process: pickles, with their large buffers beside them.

Both ends are of the same release and run our code alone, so pickles are safe in both directions. Buffers of
Arrow are sent as they are, and a large file as its descriptor, so that nothing is copied through Python
objects.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Read:
    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Write:
    """`table` is what the process needs to know of its namespace."""

    table: Any
    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """A call of the namespace, which the server makes for the process."""

    method: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Returned:
    """`has_file`: the content of the result follows as a descriptor. `is_spent`: the process ends now."""

    value: Any
    has_file: bool = False
    is_spent: bool = False


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception, in parts: ours cannot be made from the arguments that pickle knows."""

    kind: type[BaseException]
    arguments: tuple[Any, ...]
    attributes: Mapping[str, Any]
    is_spent: bool = False

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        return cls(type(error), error.args, dict(vars(error)))

    def error(self) -> BaseException:
        error = self.kind.__new__(self.kind, *self.arguments)
        error.args = self.arguments
        vars(error).update(self.attributes)
        return error


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """An allocation failed and was reported instead of ending the process."""


Message: TypeAlias = Read | Write | Ask | Returned | Raised | OutOfMemory


# The number of buffers and the size of the pickle; then the sizes of the buffers, the pickle and the buffers.
HEADER: Final = struct.Struct("!IQ")
SIZE: Final = struct.Struct("!Q")
RECEIVED_AT_ONCE: Final = 1 << 16
# What sendmsg takes at least, everywhere.
PARTS_AT_ONCE: Final = 16
SEND_BUFFER_BYTES: Final = 1 << 20
READY_FOR_FILE: Final = b"f"


class Channel:
    """One end of the connection. Both take turns: nothing is sent that the other does not wait for."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._socket = connection
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._received = b""

    def send(self, message: Message) -> None:
        """Raises OSError if the other end is gone."""
        buffers: list[pickle.PickleBuffer] = []
        content = pickle.dumps(message, 5, buffer_callback=buffers.append)
        views = [buffer.raw() for buffer in buffers]
        sizes = b"".join(SIZE.pack(view.nbytes) for view in views)
        self._send_parts([HEADER.pack(len(views), len(content)) + sizes + content, *views])

    def receive(self) -> Message:
        """Waits for a message; raises EOFError or OSError if the other end is gone."""
        count, size = HEADER.unpack(self._read(HEADER.size))
        sizes = [size for (size,) in SIZE.iter_unpack(self._read(SIZE.size * count))]
        content = self._read(size)
        buffers = [self._read(size) for size in sizes]
        # Both ends are of the same release and run our code alone.
        message: Message = pickle.loads(content, buffers=buffers)
        return message

    def has_message(self, seconds: float) -> bool:
        """Whether there is something to receive, or the other end is gone."""
        return bool(self._received) or bool(self._poll.poll(seconds * 1000))

    def send_file(self, file: IO[bytes]) -> None:
        """Waits until the other end is about to receive it: a descriptor is lost in an ordinary read."""
        self._read(len(READY_FOR_FILE))
        socket.send_fds(self._socket, [READY_FOR_FILE], [file.fileno()])

    def receive_file(self) -> IO[bytes]:
        self._socket.sendall(READY_FOR_FILE)
        _, fds, *_ = socket.recv_fds(self._socket, len(READY_FOR_FILE), 1)
        if not fds:
            raise EOFError
        return os.fdopen(fds[0], "rb")

    @property
    def is_closed(self) -> bool:
        return self._socket.fileno() < 0

    def close(self) -> None:
        self._socket.close()

    def _send_parts(self, parts: Sequence[bytes | memoryview]) -> None:
        """In one call if the socket has room: the other end wakes up with the first byte."""
        sent = self._socket.sendmsg(parts[:PARTS_AT_ONCE])
        for part in parts:
            if sent < len(part):
                self._socket.sendall(memoryview(part)[sent:])
            sent = max(0, sent - len(part))

    def _read(self, size: int) -> bytes | bytearray:
        """Most messages arrive at once, so the first read asks for more than a header."""
        if not size:
            return b""
        if not self._received and size <= RECEIVED_AT_ONCE:
            self._received = self._socket.recv(RECEIVED_AT_ONCE)
        part, self._received = self._received[:size], self._received[size:]
        if len(part) == size:
            return part
        if not part and size <= RECEIVED_AT_ONCE:
            raise EOFError
        data = bytearray(size)
        data[: len(part)] = part
        view = memoryview(data)[len(part) :]
        while len(view):
            read = self._socket.recv_into(view)
            if not read:
                raise EOFError
            view = view[read:]
        return data
