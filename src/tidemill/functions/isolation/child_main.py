"""The programs of the other processes: the zygote, and the children that it forks.

A zygote is a clean Python process that has imported Arrow and forks a child per request. Starting Python and
importing Arrow takes up to a second, a fork milliseconds. Every import here delays the start of a zygote, so
this module imports nothing that only the task needs. A child opens one function and calls it until the
channel is closed.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import pickle
import resource
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from threading import RLock
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from tidemill.catalog.model.functions import FunctionKind
from tidemill.functions.blobs import BlobSource
from tidemill.functions.calling.batches import BoundFunction, Rows
from tidemill.functions.calling.in_process import open_executor, yielded_batches
from tidemill.functions.calling.limits import PROGRESS_BYTES, CallProgress
from tidemill.functions.calling.retries import Executor
from tidemill.functions.failures import FUNCTION_ERRORS, FunctionRaised, as_function_raised, describe
from tidemill.functions.isolation.protocol import (
    FORK,
    REQUEST,
    RESPONSE,
    Channel,
    Kind,
    Message,
    part_metadata,
    read_attempt,
)
from tidemill.functions.isolation.remote_table import RemoteTable
from tidemill.functions.isolation.sandbox import Limits, enter_child

PR_SET_PDEATHSIG: Final = 1
IS_LINUX: Final = sys.platform == "linux"
LIBC: Final = ctypes.CDLL(None) if IS_LINUX else None
# Gets the process id of the zygote, the memory limit and the descriptors, and never returns.
ChildProgram: TypeAlias = Callable[[int, int, Sequence[int]], None]


def run_child(limits: Limits | None, zygote_pid: int, memory_bytes: int, fds: Sequence[int]) -> None:
    """Runs in the new process and never returns: nothing of the zygote's stack may run in a child.

    In a sandbox there are `limits`.
    """
    try:
        channel_fd, progress_fd = fds
        if limits is None:
            end_with_parent(zygote_pid)
            if memory_bytes:
                resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        else:
            own = replace(limits, memory_bytes=memory_bytes or None)
            enter_child(own, (channel_fd, progress_fd))
        os.setsid()
        if "numpy.random" in sys.modules:
            # Otherwise all children would draw the same numbers.
            np.random.seed()
        progress = CallProgress(mmap.mmap(progress_fd, PROGRESS_BYTES))
        FunctionServer(Channel(socket.socket(fileno=channel_fd)), progress).run()
        os._exit(0)
    except BaseException:  # noqa: BLE001  # nothing above it may run in a fork
        traceback.print_exc()
        os._exit(1)


def end_with_parent(zygote_pid: int) -> None:
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # The zygote may have ended before the call above.
        if os.getppid() != zygote_pid:
            os._exit(1)


class FunctionServer:
    """Handles the messages of the task one after another."""

    def __init__(self, channel: Channel, progress: CallProgress) -> None:
        self._channel = channel
        self._progress = progress
        # A function may read blobs in its own threads.
        self._lock = RLock()

    def run(self) -> None:
        try:
            opened = self._open(self._channel.receive())
            while opened is not None:
                message = self._channel.receive()
                if isinstance(opened, BoundFunction):
                    self._run_table(opened)
                else:
                    self._run_rows(opened, message)
        except (EOFError, ConnectionError):
            return

    def read_blob(self, metadata: dict[str, Any]) -> Message:
        """Asks the task for a piece of a blob; raises OSError if it cannot be read."""
        return self._ask(Kind.READ, metadata)

    def ask_source(self, metadata: Mapping[str, Any]) -> Message:
        """Asks the task for rows of a table function's source; raises OSError if they cannot be read."""
        return self._ask(Kind.ASK_SOURCE, metadata)

    def _ask(self, kind: Kind, metadata: Mapping[str, Any]) -> Message:
        with self._lock:
            self._channel.send(kind, metadata)
            response = self._channel.receive()
        if "error" in response.metadata:
            raise OSError(response.metadata["error"])
        return response

    def _open(self, message: Message) -> Executor | BoundFunction | None:
        """A table function is opened when it is called."""
        executor: Executor | BoundFunction
        try:
            # The task is trusted, so its pickle is. What a child sends back is never unpickled.
            bound = pickle.loads(message.body)
            is_table = bound.function.kind is FunctionKind.TABLE
            executor = bound if is_table else open_executor(bound, self._progress)
        except FUNCTION_ERRORS as error:
            self._send_failure(as_function_raised(error))
            return None
        self._channel.send(Kind.OPENED)
        return executor

    def _run_rows(self, executor: Executor, message: Message) -> None:
        try:
            for part in executor.run(self._rows(message), read_attempt(message.metadata["attempt"])):
                with self._lock:
                    self._channel.send_batch(Kind.PART, part_metadata(part), part.values)
        except FUNCTION_ERRORS as error:
            self._send_failure(as_function_raised(error))
            return
        self._channel.send(Kind.DONE)

    def _run_table(self, bound: BoundFunction) -> None:
        source = RemoteTable(self.ask_source)
        try:
            self._progress.begin(0, 1)
            for batch in yielded_batches(bound.function, source, bound.output):
                self._progress.end()
                with self._lock:
                    self._channel.send_batch(Kind.PART, {}, batch)
                self._progress.begin(0, 1)
            self._progress.end()
        except FUNCTION_ERRORS as error:
            self._progress.end()
            raised = as_function_raised(error)
            names = describe(raised.__cause__ or raised).names
            self._channel.send(Kind.FAILED, {**asdict(raised.failure), "names": names})
            return
        self._channel.send(Kind.DONE)

    def _send_failure(self, raised: FunctionRaised) -> None:
        self._channel.send(Kind.FAILED, asdict(raised.failure))

    def _rows(self, message: Message) -> Rows:
        batch = message.batch()
        *inputs, row_ids = batch.columns
        blobs = {number: self._sources(number, inputs[number]) for number in message.metadata["blobs"]}
        given = pa.RecordBatch.from_arrays(inputs, schema=pa.schema(list(batch.schema)[:-1]))
        return Rows(given, row_ids.to_numpy(), blobs)

    def _sources(self, column: int, present: pa.Array) -> Sequence[BlobSource | None]:
        return [
            RemoteSource(self, column, row) if is_present else None
            for row, is_present in enumerate(present.to_pylist())
        ]


class RemoteSource:
    """A blob that the task holds; each read is a message to the task."""

    def __init__(self, server: FunctionServer, column: int, row: int) -> None:
        self._server = server
        self._position = {"column": column, "row": row}

    def size(self) -> int:
        request = {**self._position, "offset": None, "length": 0}
        return int(self._server.read_blob(request).metadata["size"])

    def read_at(self, offset: int, length: int) -> bytes:
        request = {**self._position, "offset": offset, "length": length}
        return bytes(self._server.read_blob(request).body)


POLL_SECONDS: Final = 0.005


class Zygote:
    """Forks children and reaps them; exits when the task closes the control socket."""

    def __init__(self, control: socket.socket, run_child: ChildProgram) -> None:
        self._control = control
        self._run_child = run_child
        self._children: set[int] = set()

    def run(self) -> None:
        while True:
            raw, fds, *_ = socket.recv_fds(self._control, REQUEST.size, 2)
            if len(raw) < REQUEST.size:
                break
            operation, number, milliseconds = REQUEST.unpack(raw)
            result = self._fork(number, fds) if operation == FORK else self._end(number, milliseconds / 1000)
            try:
                self._control.sendall(RESPONSE.pack(result))
            except OSError:
                # The task has ended without waiting for the response.
                break
        for pid in list(self._children):
            self._end(pid, 0)

    def _fork(self, memory_bytes: int, fds: list[int]) -> int:
        zygote_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._control.close()
            self._run_child(zygote_pid, memory_bytes, fds)
        for fd in fds:
            os.close(fd)
        self._children.add(pid)
        return pid

    def _end(self, pid: int, wait_seconds: float) -> int:
        """Waits for a child to exit, then kills it. Returns its exit code, negative if it was a signal."""
        self._children.discard(pid)
        give_up_at = time.monotonic() + wait_seconds
        found, status = os.waitpid(pid, os.WNOHANG)
        while not found and time.monotonic() < give_up_at:
            time.sleep(POLL_SECONDS)
            found, status = os.waitpid(pid, os.WNOHANG)
        # The group includes what the child started. A new child may not have made its group yet.
        for kill in (os.killpg,) if found else (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(status if found else os.waitpid(pid, 0)[1])


def main(limits: Limits | None = None) -> None:
    """In a sandbox there are limits for its children."""
    # The first conversion makes Arrow look for optional libraries: once here, instead of in every child.
    pa.array([0], pa.int64())
    run_zygote(partial(run_child, limits))


def run_zygote(run_child: ChildProgram) -> None:
    """Standard input is the control socket."""
    control = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # What functions print goes to the log.
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Python warns about forking with threads; the libraries that have started some by now support it.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    gc.freeze()
    Zygote(control, run_child).run()
