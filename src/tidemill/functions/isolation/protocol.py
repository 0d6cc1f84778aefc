"""The two protocols: requests of a task to a zygote, and messages between a task and a child.

Both ends are of the same release, so nothing here has to stay compatible. A function shares its process
with the child's end and may send anything: the task checks what it reads and never unpickles it.
"""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, Final

import pyarrow as pa

from tidemill.functions.calling.batches import Part
from tidemill.functions.calling.retries import Attempt
from tidemill.functions.failures import FailedRows, Raised
from tidemill.jobs.model.failures import ErrorPolicy, RowFailure

# A request has an operation, a number (FORK: memory limit, END_CHILD: process id) and milliseconds to wait.
# The response is one number: process id or exit code. FORK also passes two descriptors: channel and progress.
FORK: Final = 1
END_CHILD: Final = 2
REQUEST: Final = struct.Struct("!BqI")
RESPONSE: Final = struct.Struct("!q")
# The kind of a message and the sizes of its metadata and its body.
HEADER: Final = struct.Struct("!BIQ")
# Otherwise a function could make the task allocate whatever it likes.
MAX_METADATA_BYTES: Final = 64 << 20
MAX_BODY_BYTES: Final = 4 << 30


class Kind(IntEnum):
    """The task sends OPEN, RUN, RUN_TABLE and BYTES, a child the rest."""

    OPEN = 1
    OPENED = 2
    RUN = 3
    PART = 4
    DONE = 5
    READ = 6
    BYTES = 7
    FAILED = 8
    RUN_TABLE = 9
    ASK_SOURCE = 10


@dataclass(frozen=True)
class Message:
    kind: Kind
    metadata: Mapping[str, Any]
    body: bytearray

    def batch(self) -> pa.RecordBatch:
        with pa.ipc.open_stream(pa.py_buffer(self.body)) as stream:
            return stream.read_next_batch()


class Channel:
    """A stream socket that carries messages, each with metadata in JSON and a body of bytes."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def send(self, kind: Kind, metadata: Mapping[str, Any] | None = None, body: Any = b"") -> None:
        text = json.dumps(metadata or {}).encode()
        view = memoryview(body)
        self._socket.sendall(HEADER.pack(kind, len(text), view.nbytes) + text)
        if view.nbytes:
            self._socket.sendall(view)

    def send_batch(self, kind: Kind, metadata: Mapping[str, Any], batch: pa.RecordBatch) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        self.send(kind, metadata, sink.getvalue())

    def receive(self) -> Message:
        """Waits for the next message; raises EOFError when the other end is closed."""
        number, metadata_bytes, body_bytes = HEADER.unpack(self._receive_exactly(HEADER.size))
        # Raises for garbage before its sizes are used.
        kind = Kind(number)
        if metadata_bytes > MAX_METADATA_BYTES or body_bytes > MAX_BODY_BYTES:
            raise ValueError(f"a message of {metadata_bytes + body_bytes:,} bytes is too large")
        metadata = json.loads(bytes(self._receive_exactly(metadata_bytes)))
        return Message(kind, metadata, self._receive_exactly(body_bytes))

    def has_message(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        self._socket.close()

    def _receive_exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        while len(view):
            read = self._socket.recv_into(view)
            if not read:
                raise EOFError
            view = view[read:]
        return data


def part_metadata(part: Part) -> dict[str, Any]:
    return {"rows": part.rows, "failures": [asdict(failed) for failed in part.failures]}


def read_part(message: Message) -> Part:
    failures = tuple(
        FailedRows(failed["start"], failed["rows"], _raised(failed["raised"]))
        for failed in message.metadata["failures"]
    )
    batch = message.batch()
    batch.validate(full=True)
    return Part(message.metadata["rows"], batch, failures)


def read_failure(message: Message) -> RowFailure:
    metadata = message.metadata
    return RowFailure(None, metadata["exception"], metadata["message"], metadata["traceback"])


def read_attempt(metadata: Mapping[str, Any]) -> Attempt:
    return Attempt(metadata["number"], ErrorPolicy.from_json(metadata["policy"], "policy"))


def _raised(metadata: Mapping[str, Any]) -> Raised:
    return Raised(metadata["exception"], metadata["message"], metadata["traceback"], tuple(metadata["names"]))
