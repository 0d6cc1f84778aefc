"""Keeps a server running: forks the process that serves, and another one when it dies.

The supervisor has imported the command line and nothing else, so a fork costs milliseconds. It knows no
settings: the first server process opens the listening socket and hands it over as soon as it serves. From
then on the socket outlives every process, and connections wait in its backlog while a new one starts. A
process that ends before it has served is not started again: its settings are wrong, and it has said so. One
that exits with 0 was told to stop.

A signal to stop the supervisor stops the server. If the supervisor is killed, the server is killed with it.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread, Timer
from types import FrameType
from typing import Final, NoReturn

import structlog

from tidemill.functions.isolation.child_main import end_with_parent
from tidemill.server.processes import GRACE_SECONDS, configure_logs

RESTART_SECONDS: Final = 1.0
# In a row, before any of them served again.
MAX_FAILED_STARTS: Final = 5
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
READY: Final = b"r"

log = structlog.get_logger("tidemill.supervisor")


@dataclass
class Supervision:
    """What a server process knows of its supervisor. `listener` is the socket of the process before it."""

    control: socket.socket
    listener: socket.socket | None

    def report_ready(self, listener: socket.socket) -> None:
        socket.send_fds(self.control, [READY], [listener.fileno()])

    def watch(self, stop: Callable[[], None]) -> None:
        """Calls `stop` when the supervisor is gone, and exits if that takes too long."""

        def wait() -> None:
            while self.control.recv(1):
                pass
            last_resort = Timer(GRACE_SECONDS, os._exit, args=(1,))
            last_resort.daemon = True
            last_resort.start()
            stop()

        Thread(target=wait, name="supervisor", daemon=True).start()


def run_supervised() -> Supervision:
    """Returns in each server process; the supervisor exits with the code of the last one."""
    return _Supervisor().run()


class _Supervisor:
    def __init__(self) -> None:
        self._server = 0
        self._stopped_by: int | None = None
        self._listener: socket.socket | None = None
        self._control: socket.socket | None = None

    def run(self) -> Supervision:
        failed_starts = 0
        handlers = {number: signal.signal(number, self._stop) for number in STOP_SIGNALS}
        while True:
            supervision = self._fork()
            if supervision is not None:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
                return supervision
            failed_starts = 0 if self._await_ready() else failed_starts + 1
            code = os.waitstatus_to_exitcode(os.waitpid(self._server, 0)[1])
            is_hopeless = self._listener is None or failed_starts >= MAX_FAILED_STARTS
            if code == 0 or self._stopped_by is not None or is_hopeless:
                self._exit(code)
            configure_logs("INFO")
            log.warning("server process ended; restarting it", exit_code=code)
            if failed_starts:
                time.sleep(RESTART_SECONDS)

    def _fork(self) -> Supervision | None:
        """None in the supervisor."""
        supervisor, (ours, theirs) = os.getpid(), socket.socketpair()
        # In between a signal would be for a process that is not known yet, or meet the wrong handler.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        self._server = os.fork()
        if not self._server:
            end_with_parent(supervisor)
            ours.close()
            if self._control is not None:
                self._control.close()
            return Supervision(theirs, self._listener)
        theirs.close()
        if self._control is not None:
            self._control.close()
        self._control = ours
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        return None

    def _await_ready(self) -> bool:
        """Whether the server process served; keeps its socket."""
        assert self._control is not None
        try:
            received, fds, *_ = socket.recv_fds(self._control, len(READY), 1)
        except ConnectionError:
            return False
        for fd in fds:
            if self._listener is None:
                self._listener = socket.socket(fileno=fd)
            else:
                os.close(fd)
        return received == READY

    def _stop(self, number: int, _: FrameType | None) -> None:
        """Always with SIGTERM: a terminal sends SIGINT to both, and a second one means impatience."""
        self._stopped_by = number
        if self._server:
            with suppress(ProcessLookupError):
                os.kill(self._server, signal.SIGTERM)

    def _exit(self, code: int) -> NoReturn:
        """Ends as the server process did."""
        if self._stopped_by == signal.SIGINT:
            raise KeyboardInterrupt
        if code < 0:
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        raise SystemExit(code)
