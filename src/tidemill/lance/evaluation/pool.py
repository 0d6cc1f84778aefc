"""The server's side: query processes of this server process, lent to one request at a time.

A process is forked when a request finds none idle, up to the bound; a request beyond it waits. One that dies
or takes too long is killed and forgotten, and the next request gets another: nobody else was in it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Condition, Lock, Thread
from time import monotonic
from typing import IO, Any, Concatenate, Final, ParamSpec, TypeVar

import structlog
from lance_namespace.errors import LanceNamespaceError

from tidemill.errors import CommitStateUnknown, TidemillError, Unavailable
from tidemill.functions.isolation.clients import ZygoteGone, ZygoteProcess
from tidemill.lance.datasets import CommittingNamespace, TableNamespace
from tidemill.lance.evaluation.bounds import (
    QueryBounds,
    all_busy,
    crashed,
    killed,
    memory_exceeded,
    time_exceeded,
)
from tidemill.lance.evaluation.messages import (
    Ask,
    Channel,
    Message,
    OutOfMemory,
    Raised,
    Read,
    Returned,
    Write,
)
from tidemill.lance.evaluation.tables import Tables

P = ParamSpec("P")
Result = TypeVar("Result")

log = structlog.get_logger("tidemill.queries")

START_CODE: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tidemill.lance.evaluation.process import main; main()"
)
WORK_MODULES: Final = (
    "tidemill.lance.queries",
    "tidemill.lance.edits",
    "tidemill.lance.schemas",
    "tidemill.lance.sources",
)
# With threads of its own, a library could not be forked; malloc would reserve address space for each thread.
VARIABLES: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "MALLOC_ARENA_MAX": "2",
    "RUST_BACKTRACE": "0",
}
IO_BUFFER_SHARE: Final = 4
ALLOCATION_FAILED: Final = b"memory allocation of"
LOG_BYTES: Final = 4000
# A process that has committed only has to say so.
AFTER_COMMIT_SECONDS: Final = 30.0
ZYGOTE_ATTEMPTS: Final = 2
# No expression ends its process with these: they come from an operator or the kernel.
OUTSIDE_SIGNALS: Final = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


class _Lost(Exception):
    """The process has ended, or was killed after `is_late`."""

    def __init__(self, *, is_late: bool = False) -> None:
        self.is_late = is_late


class _Process:
    """A query process, as the server sees it."""

    def __init__(self, zygote: ZygoteProcess, memory_bytes: int) -> None:
        self._zygote = zygote
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        ours, theirs = socket.socketpair()
        with theirs:
            self.pid = zygote.fork_with((theirs.fileno(), self._log.fileno()), memory_bytes)
        self.channel = Channel(ours)

    @property
    def has_ended(self) -> bool:
        """While it is idle."""
        return self.channel.has_message(0)

    def request(self, message: Message, namespace: CommittingNamespace | None, seconds: float) -> Message:
        """Returns the last answer; raises _Lost."""
        end = monotonic() + seconds
        try:
            self.channel.send(message)
            while True:
                if namespace is not None and namespace.committed is not None:
                    end = max(end, monotonic() + AFTER_COMMIT_SECONDS)
                if not self.channel.has_message(max(0.0, end - monotonic())):
                    raise _Lost(is_late=True)
                answer = self.channel.receive()
                if not isinstance(answer, Ask):
                    return answer
                assert namespace is not None
                self.channel.send(_called(namespace, answer))
        except (EOFError, OSError) as error:
            raise _Lost from error

    def end(self, wait_seconds: float = 0) -> tuple[int | None, bytes]:
        """Kills the process; returns its exit code and the end of what it has printed."""
        self.channel.close()
        code = self._zygote.end_child(self.pid, wait_seconds)
        with self._log as printed:
            size = printed.seek(0, os.SEEK_END)
            printed.seek(max(0, size - LOG_BYTES))
            return code, printed.read()


def _called(namespace: CommittingNamespace, ask: Ask) -> Message:
    try:
        return Returned(getattr(namespace, ask.method)(ask.fields))
    except (TidemillError, LanceNamespaceError) as error:
        return Raised.of(error)


class QueryProcesses:
    """The Evaluator of servers. `variables` is the environment of the server."""

    def __init__(self, bounds: QueryBounds, variables: Mapping[str, str]) -> None:
        self.bounds = bounds
        self._variables = variables
        self._change = Condition()
        self._idle: list[_Process] = []
        self._busy: Counter[str] = Counter()
        self._is_closed = False
        self._zygote: ZygoteProcess | None = None
        self._starting = Lock()

    def start(self) -> None:
        """Starts the first process in the background, so that the first query does not wait for it."""
        Thread(target=self._start_first, name="query process", daemon=True).start()

    def close(self) -> None:
        with self._change:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()
        with self._starting:
            if self._zygote is not None:
                self._zygote.close()

    def read(
        self,
        caller: str,
        work: Callable[Concatenate[Tables, P], Result],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> Result:
        result: Result = self._run(caller, Read(work, arguments, options), None)
        return result

    def write(
        self,
        caller: str,
        work: Callable[Concatenate[TableNamespace, P], Result],
        namespace: CommittingNamespace,
        *arguments: P.args,
        **options: P.kwargs,
    ) -> Result:
        message = Write(namespace.table, work, arguments, options)
        result: Result = self._run(caller, message, namespace)
        return result

    def _run(self, caller: str, message: Message, namespace: CommittingNamespace | None) -> Any:
        process = self._acquire(caller)
        is_kept = False
        try:
            answer = process.request(message, namespace, self.bounds.seconds)
            match answer:
                case Returned():
                    value = _with_file(answer, process.channel)
                    is_kept = not answer.is_spent
                    return value
                case Raised():
                    is_kept = not answer.is_spent
                    raise answer.error()
                case OutOfMemory():
                    raise memory_exceeded(self.bounds)
                case _:
                    raise TypeError(f"{answer} is not an answer")
        except _Lost as lost:
            raise self._lost(process, namespace, is_late=lost.is_late) from lost
        finally:
            self._release(caller, process, is_kept=is_kept)

    def _lost(
        self, process: _Process, namespace: CommittingNamespace | None, *, is_late: bool
    ) -> TidemillError:
        code, printed = process.end(0 if is_late else 1)
        text = printed.decode(errors="replace").strip()
        log.warning("query process lost", exit_code=code, is_late=is_late, printed=text)
        if namespace is not None and namespace.committed is not None:
            return CommitStateUnknown(
                f"Version {namespace.committed} of {namespace.table.ident} was committed, but the process "
                "that wrote it was lost before it told how many rows it changed"
            )
        if is_late:
            return time_exceeded(self.bounds)
        if ALLOCATION_FAILED in printed:
            return memory_exceeded(self.bounds)
        if code is None or -code in OUTSIDE_SIGNALS:
            return killed()
        return crashed(_ending(code))

    def _acquire(self, caller: str) -> _Process:
        """Waits until the caller may have a process; raises Throttled."""
        end = monotonic() + self.bounds.queue_seconds
        with self._change:
            while not self._has_room(caller):
                if not self._change.wait(end - monotonic()) and not self._has_room(caller):
                    raise all_busy(self.bounds)
            self._busy[caller] += 1
            while self._idle:
                process = self._idle.pop()
                if not process.has_ended:
                    return process
                process.end()
        try:
            return self._fork()
        except BaseException:
            self._leave(caller)
            raise

    def _has_room(self, caller: str) -> bool:
        busy = self._busy.total()
        return busy < self.bounds.processes and self._busy[caller] < self.bounds.processes_per_caller

    def _release(self, caller: str, process: _Process, *, is_kept: bool) -> None:
        with self._change:
            is_kept = is_kept and not self._is_closed
            if is_kept:
                self._idle.append(process)
        if not is_kept and not process.channel.is_closed:
            process.end()
        self._leave(caller)

    def _leave(self, caller: str) -> None:
        with self._change:
            self._busy[caller] -= 1
            if not self._busy[caller]:
                del self._busy[caller]
            self._change.notify_all()

    def _fork(self) -> _Process:
        for _ in range(ZYGOTE_ATTEMPTS):
            zygote = self._running_zygote()
            with suppress(ZygoteGone):
                return _Process(zygote, self.bounds.memory_bytes)
            with self._starting:
                if self._zygote is zygote:
                    zygote.close()
                    self._zygote = None
        raise Unavailable("The processes that evaluate queries cannot be started; the server's log says why")

    def _running_zygote(self) -> ZygoteProcess:
        with self._starting:
            if self._zygote is None:
                self._zygote = ZygoteProcess(_command(self.bounds), _variables(self.bounds, self._variables))
            return self._zygote

    def _start_first(self) -> None:
        with suppress(TidemillError, OSError):
            process = self._fork()
            with self._change:
                if not self._is_closed:
                    self._idle.append(process)
                    return
            process.end()


def _with_file(answer: Returned, channel: Channel) -> Any:
    if not answer.has_file:
        return answer.value
    return replace(answer.value, content=channel.receive_file())


def _command(bounds: QueryBounds) -> Sequence[str]:
    path = [os.path.abspath(entry) for entry in sys.path if entry]
    arguments = (json.dumps(path), json.dumps(WORK_MODULES), str(bounds.result_bytes))
    return [sys.executable, "-c", START_CODE, *arguments]


def _variables(bounds: QueryBounds, given: Mapping[str, str]) -> dict[str, str]:
    """Those of the server, with the credentials of the storage, but without its settings."""
    kept = {name: value for name, value in given.items() if not name.startswith("TIDEMILL_")}
    buffers = {"LANCE_DEFAULT_IO_BUFFER_SIZE": str(bounds.memory_bytes // IO_BUFFER_SHARE)}
    return {**buffers, **kept, **VARIABLES}


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    return f"signal {name}"
