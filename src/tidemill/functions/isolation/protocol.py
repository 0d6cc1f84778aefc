"""Messages between a task and the children that call functions for it."""

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
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy, RowFailure

# Requests to a zygote: operation, number, milliseconds. Its answer is one number.
FORK: Final = 1
END: Final = 2
REQUEST: Final = struct.Struct("!BqI")
ANSWER: Final = struct.Struct("!q")
HEADER: Final = struct.Struct("!BIQ")


class Kind(IntEnum):
    """What a message is; the task sends OPEN, SWEEP and BYTES, a child the rest."""

    OPEN = 1
    OPENED = 2
    SWEEP = 3
    PART = 4
    DONE = 5
    READ = 6
    BYTES = 7
    FAILED = 8


@dataclass(frozen=True)
class Message:
    kind: Kind
    notes: Mapping[str, Any]
    body: bytearray

    def batch(self) -> pa.RecordBatch:
        with pa.ipc.open_stream(pa.py_buffer(self.body)) as stream:
            return stream.read_next_batch()


class Channel:
    """A stream socket that carries messages: some notes as JSON and some bytes each."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def send(self, kind: Kind, notes: Mapping[str, Any] | None = None, body: Any = b"") -> None:
        text = json.dumps(notes or {}).encode()
        view = memoryview(body)
        self._socket.sendall(HEADER.pack(kind, len(text), view.nbytes) + text)
        if view.nbytes:
            self._socket.sendall(view)

    def send_batch(self, kind: Kind, notes: Mapping[str, Any], batch: pa.RecordBatch) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        self.send(kind, notes, sink.getvalue())

    def receive(self) -> Message:
        """Waits for the next message; raises EOFError when the other side is gone."""
        number, notes_bytes, body_bytes = HEADER.unpack(self._exactly(HEADER.size))
        # Before the sizes are believed.
        kind = Kind(number)
        notes = json.loads(bytes(self._exactly(notes_bytes)))
        return Message(kind, notes, self._exactly(body_bytes))

    def has_message(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, count: int) -> bytearray:
        found = bytearray(count)
        view = memoryview(found)
        while len(view):
            read = self._socket.recv_into(view)
            if not read:
                raise EOFError
            view = view[read:]
        return found


def part_notes(part: Part) -> dict[str, Any]:
    return {"rows": part.rows, "failures": [asdict(failed) for failed in part.failures]}


def read_part(message: Message) -> Part:
    failures = tuple(
        FailedRows(note["start"], note["rows"], _raised(note["raised"])) for note in message.notes["failures"]
    )
    batch = message.batch()
    batch.validate(full=True)
    return Part(message.notes["rows"], batch, failures)


def read_failure(message: Message) -> RowFailure:
    notes = message.notes
    return RowFailure(None, notes["exception"], notes["message"], notes["traceback"])


def read_attempt(notes: Mapping[str, Any]) -> Attempt:
    policy = notes["policy"]
    action, retry_on = ErrorAction(policy["action"]), tuple(policy["retry_on"])
    return Attempt(notes["number"], ErrorPolicy(**{**policy, "action": action, "retry_on": retry_on}))


def _raised(notes: Mapping[str, Any]) -> Raised:
    return Raised(notes["exception"], notes["message"], notes["traceback"], tuple(notes["names"]))
