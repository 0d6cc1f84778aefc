"""The task's handles of its other processes.

`ZygoteClient` starts a zygote and asks it to fork and end children. `ChildClient` sends rows to a child,
serves its reads of blobs, and finds out how it ended.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from typing import IO, Any, Final, TypeAlias

import pyarrow as pa

from tidemill.functions.calling.batches import BoundFunction, Part, Rows
from tidemill.functions.calling.limits import PROGRESS_BYTES, CallProgress, CurrentCall
from tidemill.functions.calling.retries import Attempt
from tidemill.functions.failures import (
    CRASHED,
    HOST_FAILED,
    TIMED_OUT,
    FunctionRaised,
    Raised,
    error_without_row,
    synthetic_error,
)
from tidemill.functions.isolation.confinement import python_path
from tidemill.functions.isolation.protocol import (
    END_CHILD,
    FORK,
    REQUEST,
    RESPONSE,
    Channel,
    Kind,
    Message,
    read_failure,
    read_part,
)
from tidemill.functions.isolation.sandbox import Sandbox

# The zygote gets the path of the task, so that functions can import the same modules.
START_CODE: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "import site; [site.addsitedir(path) for path in json.loads(sys.argv[2])]; "
    "from tidemill.functions.isolation.child_main import main; main()"
)
# Packages are on the path only inside: they are the user's code as well.
SANDBOX_START_CODE: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tidemill.functions.isolation.sandbox import Sandbox, enter; "
    "sandbox = Sandbox.from_json(json.loads(sys.argv[3])); enter(sandbox); "
    "first = json.loads(sys.argv[2]); sys.path[:0] = first; "
    "import site; [site.addsitedir(path) for path in first]; "
    "from tidemill.functions.isolation.child_main import main; main(sandbox.limits)"
)
LOCALE: Final = "C.UTF-8"
SANDBOX_HOME: Final = "/tmp"  # each child has its own
SHUTDOWN_SECONDS: Final = 5.0
# A child interrupts a call that takes too long. If it cannot, it is killed this much later.
GRACE_SECONDS: Final = 1.0
WATCH_SECONDS: Final = 0.05
# A child that has closed its channel is about to exit; wait for its exit code.
EXIT_SECONDS: Final = 1.0
READ_ERRORS: Final = (OSError, ValueError, RuntimeError)
# The child is gone, or the function has written to its channel.
LOST_ERRORS: Final = (EOFError, OSError, pa.ArrowException, ValueError, LookupError, TypeError, MemoryError)
LOG_BYTES: Final = 1 << 16
# Answers a request of a table function to its source: metadata and bytes.
SourceAnswers: TypeAlias = Callable[[Mapping[str, Any]], tuple[dict[str, Any], Any]]


@dataclass(frozen=True)
class ZygoteSpec:
    """How a zygote is started; equal specs share one. `owner` keeps a fork from using its parent's zygote."""

    command_prefix: tuple[str, ...] = ()
    packages: Path | None = None
    variables: tuple[tuple[str, str], ...] = ()
    sandbox: Sandbox | None = None
    owner: int = field(default_factory=os.getpid)


@dataclass(frozen=True)
class ForkedChild:
    """A new child: its channel, its progress, and its process id as the zygote knows it."""

    channel: Channel
    progress: CallProgress
    pid: int


class ZygoteGone(Exception):
    """The zygote has ended."""


class ZygoteProcess:
    """Starts a zygote and sends it requests. Several threads may share one."""

    def __init__(
        self, command: Sequence[str], variables: Mapping[str, str], stderr: int | None = None
    ) -> None:
        self._lock = Lock()
        self._control, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    env=variables,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    start_new_session=True,
                )
        except OSError:
            self._control.close()
            raise

    def fork_with(self, fds: Sequence[int], memory_bytes: int) -> int:
        """Forks a child that gets the descriptors; returns its process id as the zygote knows it."""
        return self._request(FORK, memory_bytes, 0, list(fds))

    def end_child(self, pid: int, wait_seconds: float) -> int | None:
        """Waits for a child to exit, then kills it. Returns its exit code, None if the zygote is gone."""
        try:
            return self._request(END_CHILD, pid, int(wait_seconds * 1000))
        except ZygoteGone:
            return None

    def close(self) -> int:
        """Ends the zygote and with it all its children; returns its exit code."""
        self._control.close()
        try:
            return self._process.wait(SHUTDOWN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _request(self, operation: int, number: int, milliseconds: int, fds: list[int] | None = None) -> int:
        try:
            with self._lock:
                socket.send_fds(self._control, [REQUEST.pack(operation, number, milliseconds)], fds or [])
                raw = self._control.recv(RESPONSE.size, socket.MSG_WAITALL)
        except OSError as error:
            raise ZygoteGone from error
        if len(raw) < RESPONSE.size:
            raise ZygoteGone
        return int(RESPONSE.unpack(raw)[0])


class ZygoteClient(ZygoteProcess):
    """The zygote of functions; it can be in a sandbox."""

    def __init__(self, spec: ZygoteSpec) -> None:
        stderr = None if spec.sandbox is None else subprocess.PIPE
        try:
            super().__init__(command(spec), variables(spec), stderr)
        except OSError as error:
            raise error_without_row(
                synthetic_error(HOST_FAILED, f"{spec.command_prefix} cannot be run: {error}")
            ) from error
        if self._process.stderr is not None:
            Thread(target=_copy_log, args=(self._process.stderr,), name="log", daemon=True).start()

    def fork(self, memory_bytes: int | None) -> ForkedChild:
        memory_fd = _shared_memory()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                pid = self.fork_with((theirs.fileno(), memory_fd), memory_bytes or 0)
            return ForkedChild(Channel(ours), CallProgress(mmap.mmap(memory_fd, PROGRESS_BYTES)), pid)
        except ZygoteGone:
            ours.close()
            raise
        finally:
            os.close(memory_fd)


def _copy_log(output: IO[bytes]) -> None:
    """What functions print, in our standard error; they could read a file that they were given instead."""
    with output:
        while text := os.read(output.fileno(), LOG_BYTES):
            with suppress(OSError):
                os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text)


def command(spec: ZygoteSpec) -> list[str]:
    first = [] if spec.packages is None else [str(spec.packages)]
    if spec.sandbox is None:
        path = [*first, *(os.path.abspath(entry) for entry in sys.path if entry)]
        arguments = [START_CODE, json.dumps(path), json.dumps(first)]
    else:
        contents = json.dumps(spec.sandbox.to_json())
        arguments = [SANDBOX_START_CODE, json.dumps(python_path()), json.dumps(first), contents]
    return [*spec.command_prefix, sys.executable, "-I", "-c", *arguments]


def variables(spec: ZygoteSpec) -> Mapping[str, str]:
    """None of the task's variables, which may hold credentials."""
    bins = [os.defpath] if spec.packages is None else [str(spec.packages / "bin"), os.defpath]
    home = tempfile.gettempdir() if spec.sandbox is None else SANDBOX_HOME
    default = {"PATH": os.pathsep.join(bins), "HOME": home, "LANG": LOCALE}
    return {**default, **dict(spec.variables)}


def _shared_memory() -> int:
    """On Linux a child cannot truncate it, which would crash the task."""
    if sys.platform == "linux":
        fd = os.memfd_create("progress", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.truncate(fd, PROGRESS_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return fd
    with tempfile.TemporaryFile() as file:
        file.truncate(PROGRESS_BYTES)
        return os.dup(file.fileno())


class ChildLost(Exception):
    """A child ended, or had to be killed, while it was working; `at` is its last call."""

    def __init__(self, raised: Raised, at: CurrentCall) -> None:
        super().__init__(raised.message)
        self.raised = raised
        self.at = at


class ChildClient:
    """A child process that has opened one function."""

    def __init__(self, zygote: ZygoteClient, forked: ForkedChild, bound: BoundFunction) -> None:
        self._zygote = zygote
        self._forked = forked
        self._channel = forked.channel
        self.call_seconds = bound.function.timeout_seconds
        self.is_idle = False
        self._open(bound)

    def is_alive(self) -> bool:
        """An idle child sends nothing, so its channel is readable only when it has ended."""
        return not self._channel.has_message(0)

    def run(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        """Raises ChildLost if the child ends; it cannot be used again."""
        self.is_idle = False
        metadata = {"blobs": list(rows.blobs), "attempt": asdict(attempt)}
        try:
            self._channel.send_batch(Kind.RUN, metadata, _request_batch(rows))
            yield from self._parts(rows)
        except LOST_ERRORS as error:
            raise self._lost() from error
        self.is_idle = True

    def run_table(self, answer: SourceAnswers) -> Iterator[pa.RecordBatch]:
        """Calls a table function; raises ChildLost like `run`."""
        self.is_idle = False
        try:
            self._channel.send(Kind.RUN_TABLE)
            yield from self._table_batches(answer)
        except LOST_ERRORS as error:
            raise self._lost() from error
        self.is_idle = True

    def _table_batches(self, answer: SourceAnswers) -> Iterator[pa.RecordBatch]:
        while True:
            message = self._next_message()
            match message.kind:
                case Kind.PART:
                    batch = message.batch()
                    batch.validate(full=True)
                    yield batch
                case Kind.ASK_SOURCE:
                    self._channel.send(Kind.BYTES, *answer(message.metadata))
                case Kind.FAILED:
                    self.is_idle = True
                    raise FunctionRaised(read_failure(message), tuple(message.metadata.get("names", ())))
                case _:
                    return

    def end(self) -> None:
        self._channel.close()
        self._zygote.end_child(self._forked.pid, 0)

    def _open(self, bound: BoundFunction) -> None:
        try:
            self._channel.send(Kind.OPEN, body=pickle.dumps(bound))
            response = self._channel.receive()
        except LOST_ERRORS as error:
            raised = self._lost().raised
            name = bound.function.name
            raise error_without_row(
                Raised(CRASHED, f"{name} cannot be opened: {raised.message}", "", raised.names)
            ) from error
        if response.kind is Kind.FAILED:
            self.end()
            raise FunctionRaised(read_failure(response))
        self.is_idle = True

    def _parts(self, rows: Rows) -> Iterator[Part]:
        while True:
            message = self._next_message()
            match message.kind:
                case Kind.PART:
                    yield read_part(message)
                case Kind.READ:
                    self._serve_read(rows, message)
                case Kind.FAILED:
                    self.is_idle = True
                    raise FunctionRaised(read_failure(message))
                case _:
                    return

    def _next_message(self) -> Message:
        if self.call_seconds is not None:
            self._watch(self.call_seconds + GRACE_SECONDS)
        return self._channel.receive()

    def _watch(self, seconds: float) -> None:
        seen, since = self._forked.progress.read(), monotonic()
        while not self._channel.has_message(WATCH_SECONDS):
            call = self._forked.progress.read()
            if call != seen or not call.rows:
                seen, since = call, monotonic()
            elif monotonic() - since > seconds:
                self.end()
                text = f"the call took longer than {self.call_seconds:g} s and could not be interrupted"
                raise ChildLost(synthetic_error(TIMED_OUT, text), call)

    def _serve_read(self, rows: Rows, message: Message) -> None:
        metadata, body = _read(rows, message.metadata["column"], message.metadata["row"], message.metadata)
        self._channel.send(Kind.BYTES, metadata, body)

    def _lost(self) -> ChildLost:
        self._channel.close()
        code = self._zygote.end_child(self._forked.pid, EXIT_SECONDS)
        return ChildLost(synthetic_error(CRASHED, _describe_exit(code)), self._forked.progress.read())


def _request_batch(rows: Rows) -> pa.RecordBatch:
    """Blob columns only say whether there is a blob; row ids are the last column."""
    columns = [
        pa.array([source is not None for source in rows.blobs[number]]) if number in rows.blobs else column
        for number, column in enumerate(rows.inputs.columns)
    ]
    return pa.record_batch([*columns, pa.array(rows.row_ids)], names=[*rows.inputs.schema.names, "row_id"])


def _read(rows: Rows, column: int, row: int, wanted: Any) -> tuple[dict[str, Any], bytes]:
    source = rows.blobs[column][row]
    try:
        if source is None:
            return {"error": "there is no blob"}, b""
        if wanted["offset"] is None:
            return {"size": source.size()}, b""
        return {}, source.read_at(wanted["offset"], wanted["length"])
    except READ_ERRORS as error:
        return {"error": f"{type(error).__qualname__}: {error}"}, b""


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "the process it ran in is gone"
    if code >= 0:
        return f"the process it ran in ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    hint = ", as it does when memory runs out" if -code == signal.SIGKILL else ""
    return f"the process it ran in was ended by signal {name}{hint}"
