"""The program of a zygote: a clean Python process that has imported Arrow and forks a child per request.

Starting Python and importing Arrow takes up to a second, a fork milliseconds. Every import here delays
the start of a zygote, so this module and `child_main` import nothing that only the task needs.
"""

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

from tidemill.functions.isolation.child_main import run_child
from tidemill.functions.isolation.protocol import FORK, REQUEST, RESPONSE

POLL_SECONDS: Final = 0.005


class Zygote:
    """Forks children and reaps them; exits when the task closes the control socket."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: set[int] = set()

    def run(self) -> None:
        while True:
            raw, fds, *_ = socket.recv_fds(self._control, REQUEST.size, 2)
            if len(raw) < REQUEST.size:
                break
            operation, number, milliseconds = REQUEST.unpack(raw)
            result = self._fork(number, fds) if operation == FORK else self._end(number, milliseconds / 1000)
            self._control.sendall(RESPONSE.pack(result))
        for pid in list(self._children):
            self._end(pid, 0)

    def _fork(self, memory_bytes: int, fds: list[int]) -> int:
        zygote_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._control.close()
            run_child(zygote_pid, memory_bytes, *fds)
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


def main() -> None:
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
    # The first conversion makes Arrow look for optional libraries: once here, instead of in every child.
    pa.array([0], pa.int64())
    gc.freeze()
    Zygote(control).run()
