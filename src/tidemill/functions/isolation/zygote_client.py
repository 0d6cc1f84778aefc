"""Clean Python processes beside the task's, one per environment, that fork the children for functions."""

from __future__ import annotations

import json
import mmap
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final

from tidemill.functions.calling.limits import MARKS_BYTES, Marks
from tidemill.functions.failures import HOST_FAILED, in_words, without_row
from tidemill.functions.isolation.protocol import ANSWER, END, FORK, REQUEST, Channel

# The path is handed over: what the task's Python can import, the function's can.
START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "import site; [site.addsitedir(path) for path in json.loads(sys.argv[2])]; "
    "from tidemill.functions.isolation.zygote_main import main; main()"
)
LOCALE: Final = "C.UTF-8"
END_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Setup:
    """What a zygote is started with; two with the same may be one."""

    command_prefix: tuple[str, ...] = ()
    packages: Path | None = None
    variables: tuple[tuple[str, str], ...] = ()
    owner: int = field(default_factory=os.getpid)


@dataclass(frozen=True)
class Forked:
    """A new child: how to talk to it, what it is at, and the number it has where it was forked."""

    channel: Channel
    marks: Marks
    pid: int


class ZygoteGone(Exception):
    """The process that forks children has ended."""


class Zygote:
    """Asks one zygote for children; several threads may."""

    def __init__(self, setup: Setup) -> None:
        self._lock = Lock()
        self._control, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command(setup),
                    env=variables(setup),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError as error:
            self._control.close()
            raise without_row(
                in_words(HOST_FAILED, f"{setup.command_prefix} cannot be run: {error}")
            ) from error

    def fork(self, memory_bytes: int | None) -> Forked:
        memory_fd = _shared_memory()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                pid = self._ask(FORK, memory_bytes or 0, 0, [theirs.fileno(), memory_fd])
            return Forked(Channel(ours), Marks(mmap.mmap(memory_fd, MARKS_BYTES)), pid)
        except ZygoteGone:
            ours.close()
            raise
        finally:
            os.close(memory_fd)

    def end(self, pid: int, patience: float) -> int | None:
        """Ends a child if it has not ended by itself; its exit code, or none if nobody knows it any more."""
        try:
            return self._ask(END, pid, int(patience * 1000))
        except ZygoteGone:
            return None

    def close(self) -> int:
        """Its children end with it."""
        self._control.close()
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _ask(self, operation: int, number: int, milliseconds: int, fds: list[int] | None = None) -> int:
        try:
            with self._lock:
                socket.send_fds(self._control, [REQUEST.pack(operation, number, milliseconds)], fds or [])
                raw = self._control.recv(ANSWER.size, socket.MSG_WAITALL)
        except OSError as error:
            raise ZygoteGone from error
        if len(raw) < ANSWER.size:
            raise ZygoteGone
        return int(ANSWER.unpack(raw)[0])


def command(setup: Setup) -> list[str]:
    first = [] if setup.packages is None else [str(setup.packages)]
    path = [*first, *(os.path.abspath(entry) for entry in sys.path if entry)]
    python = [sys.executable, "-I", "-c", START, json.dumps(path), json.dumps(first)]
    return [*setup.command_prefix, *python]


def variables(setup: Setup) -> Mapping[str, str]:
    """Nothing of the task's own: there may be credentials in it."""
    places = [os.defpath] if setup.packages is None else [str(setup.packages / "bin"), os.defpath]
    usual = {"PATH": os.pathsep.join(places), "HOME": tempfile.gettempdir(), "LANG": LOCALE}
    return {**usual, **dict(setup.variables)}


def _shared_memory() -> int:
    with tempfile.TemporaryFile() as file:
        file.truncate(MARKS_BYTES)
        return os.dup(file.fileno())
