"""A child at work: opens the function it is sent and goes over rows with it until nobody asks any more."""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from threading import RLock
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidemill.functions.blobs import BlobSource
from tidemill.functions.calling.batches import Rows
from tidemill.functions.calling.in_process import opened
from tidemill.functions.calling.limits import MARKS_BYTES, Marks
from tidemill.functions.calling.retries import Sweeper
from tidemill.functions.failures import RAISED, FunctionRaised, failed
from tidemill.functions.isolation.protocol import Channel, Kind, Message, part_notes, read_attempt

PR_SET_PDEATHSIG: Final = 1
IS_LINUX: Final = sys.platform == "linux"
LIBC: Final = ctypes.CDLL(None) if IS_LINUX else None


class RemoteSource:
    """A blob that the task holds: it is asked for each piece."""

    def __init__(self, server: Server, column: int, row: int) -> None:
        self._server = server
        self._place = {"column": column, "row": row}

    def size(self) -> int:
        return int(self._server.ask({**self._place, "offset": None, "length": 0}).notes["size"])

    def read_at(self, offset: int, length: int) -> bytes:
        return bytes(self._server.ask({**self._place, "offset": offset, "length": length}).body)


class Server:
    """Answers the task's messages one after the other."""

    def __init__(self, channel: Channel, marks: Marks) -> None:
        self._channel = channel
        self._marks = marks
        # A function may read blobs in threads of its own.
        self._lock = RLock()

    def run(self) -> None:
        try:
            calls = self._opened(self._channel.receive())
            while calls is not None:
                self._sweep(calls, self._channel.receive())
        except (EOFError, ConnectionError):
            return

    def ask(self, notes: dict[str, Any]) -> Message:
        with self._lock:
            self._channel.send(Kind.READ, notes)
            answer = self._channel.receive()
        if "error" in answer.notes:
            raise OSError(answer.notes["error"])
        return answer

    def _opened(self, message: Message) -> Sweeper | None:
        try:
            # Written by the task, which is trusted; what comes back to it is never pickled.
            calls = opened(pickle.loads(message.body), self._marks)
        except RAISED as error:
            self._tell(failed(error))
            return None
        self._channel.send(Kind.OPENED)
        return calls

    def _sweep(self, calls: Sweeper, message: Message) -> None:
        try:
            for part in calls.sweep(self._rows(message), read_attempt(message.notes["attempt"])):
                with self._lock:
                    self._channel.send_batch(Kind.PART, part_notes(part), part.values)
        except RAISED as error:
            self._tell(failed(error))
            return
        self._channel.send(Kind.DONE)

    def _tell(self, raised: FunctionRaised) -> None:
        self._channel.send(Kind.FAILED, asdict(raised.failure))

    def _rows(self, message: Message) -> Rows:
        batch = message.batch()
        *inputs, row_ids = batch.columns
        blobs = {number: self._sources(number, inputs[number]) for number in message.notes["blobs"]}
        given = pa.RecordBatch.from_arrays(inputs, schema=pa.schema(list(batch.schema)[:-1]))
        return Rows(given, row_ids.to_numpy(), blobs)

    def _sources(self, column: int, present: pa.Array) -> Sequence[BlobSource | None]:
        return [
            RemoteSource(self, column, row) if is_present else None
            for row, is_present in enumerate(present.to_pylist())
        ]


def live(ancestor: int, memory_bytes: int, channel_fd: int, marks_fd: int) -> None:
    """The child's life; it does not return."""
    try:
        os.setsid()
        _die_with(ancestor)
        if memory_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        if "numpy.random" in sys.modules:
            # Forks would draw the same numbers.
            np.random.seed()
        marks = Marks(mmap.mmap(marks_fd, MARKS_BYTES))
        Server(Channel(socket.socket(fileno=channel_fd)), marks).run()
        os._exit(0)
    except BaseException:  # noqa: BLE001  # nothing above it may run in a fork
        traceback.print_exc()
        os._exit(1)


def _die_with(ancestor: int) -> None:
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != ancestor:
            os._exit(1)
