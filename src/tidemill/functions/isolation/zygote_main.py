"""The ancestor of the children that call functions: a clean Python that forks in milliseconds when asked."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import time
import warnings
from contextlib import suppress
from typing import Final

import pyarrow as pa

from tidemill.functions.isolation.child_main import live
from tidemill.functions.isolation.protocol import ANSWER, FORK, REQUEST

POLL_SECONDS: Final = 0.005


class Zygote:
    """Forks a child per request and buries those that ended; ends itself with the process that asked."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: set[int] = set()

    def run(self) -> None:
        while True:
            raw, fds, *_ = socket.recv_fds(self._control, REQUEST.size, 2)
            if len(raw) < REQUEST.size:
                break
            operation, number, milliseconds = REQUEST.unpack(raw)
            answer = self._fork(number, fds) if operation == FORK else self._end(number, milliseconds / 1000)
            self._control.sendall(ANSWER.pack(answer))
        for pid in list(self._children):
            self._end(pid, 0)

    def _fork(self, memory_bytes: int, fds: list[int]) -> int:
        ancestor = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._control.close()
            live(ancestor, memory_bytes, *fds)
        for fd in fds:
            os.close(fd)
        self._children.add(pid)
        return pid

    def _end(self, pid: int, patience: float) -> int:
        """Its exit code, negative if it was a signal. One that has closed its end is left a moment to die."""
        self._children.discard(pid)
        give_up_at = time.monotonic() + patience
        found, status = os.waitpid(pid, os.WNOHANG)
        while not found and time.monotonic() < give_up_at:
            time.sleep(POLL_SECONDS)
            found, status = os.waitpid(pid, os.WNOHANG)
        # Also what it started, which is in its group; it may not have come to make that group.
        for kill in (os.killpg,) if found else (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(status if found else os.waitpid(pid, 0)[1])


def main() -> None:
    """Standard input is the socket that requests come by."""
    control = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # What functions print belongs in the log.
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Libraries that have threads by now know how to fork.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    # Arrow looks for other libraries when it first converts something; forks need not.
    pa.array([0], pa.int64())
    gc.freeze()
    Zygote(control).run()
