"""The task's handle of a zygote: starts the process and asks it to fork and end children."""

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

from tidemill.functions.calling.limits import PROGRESS_BYTES, CallProgress
from tidemill.functions.failures import HOST_FAILED, error_without_row, synthetic_error
from tidemill.functions.isolation.protocol import END_CHILD, FORK, REQUEST, RESPONSE, Channel

# The zygote gets the path of the task, so that functions can import the same modules.
START_CODE: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "import site; [site.addsitedir(path) for path in json.loads(sys.argv[2])]; "
    "from tidemill.functions.isolation.zygote_main import main; main()"
)
LOCALE: Final = "C.UTF-8"
SHUTDOWN_SECONDS: Final = 5.0


@dataclass(frozen=True)
class ZygoteSpec:
    """How a zygote is started; equal specs share one. `owner` keeps a fork from using its parent's zygote."""

    command_prefix: tuple[str, ...] = ()
    packages: Path | None = None
    variables: tuple[tuple[str, str], ...] = ()
    owner: int = field(default_factory=os.getpid)


@dataclass(frozen=True)
class ForkedChild:
    """A new child: its channel, its progress, and its process id as the zygote knows it."""

    channel: Channel
    progress: CallProgress
    pid: int


class ZygoteGone(Exception):
    """The zygote has ended."""


class ZygoteClient:
    """Starts a zygote and sends it requests. Several threads may share one."""

    def __init__(self, spec: ZygoteSpec) -> None:
        self._lock = Lock()
        self._control, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command(spec),
                    env=variables(spec),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError as error:
            self._control.close()
            raise error_without_row(
                synthetic_error(HOST_FAILED, f"{spec.command_prefix} cannot be run: {error}")
            ) from error

    def fork(self, memory_bytes: int | None) -> ForkedChild:
        memory_fd = _shared_memory()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                pid = self._request(FORK, memory_bytes or 0, 0, [theirs.fileno(), memory_fd])
            return ForkedChild(Channel(ours), CallProgress(mmap.mmap(memory_fd, PROGRESS_BYTES)), pid)
        except ZygoteGone:
            ours.close()
            raise
        finally:
            os.close(memory_fd)

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


def command(spec: ZygoteSpec) -> list[str]:
    first = [] if spec.packages is None else [str(spec.packages)]
    path = [*first, *(os.path.abspath(entry) for entry in sys.path if entry)]
    python = [sys.executable, "-I", "-c", START_CODE, json.dumps(path), json.dumps(first)]
    return [*spec.command_prefix, *python]


def variables(spec: ZygoteSpec) -> Mapping[str, str]:
    """None of the task's variables, which may hold credentials."""
    bins = [os.defpath] if spec.packages is None else [str(spec.packages / "bin"), os.defpath]
    default = {"PATH": os.pathsep.join(bins), "HOME": tempfile.gettempdir(), "LANG": LOCALE}
    return {**default, **dict(spec.variables)}


def _shared_memory() -> int:
    with tempfile.TemporaryFile() as file:
        file.truncate(PROGRESS_BYTES)
        return os.dup(file.fileno())
