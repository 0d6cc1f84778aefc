"""Processes as /proc shows them: who is whose child, and who is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process, told apart from a later one with the same number by its start time."""

    pid: int
    parent: int
    started: int
    command: str

    @property
    def is_alive(self) -> bool:
        now = find_process(self.pid)
        return now is not None and now.started == self.started

    @property
    def is_java(self) -> bool:
        return self.command.split("\0")[0].endswith("java")

    @property
    def is_worker(self) -> bool:
        words = self.command.split("\0")
        return "tidemill" in words and "work" in words

    @property
    def is_task(self) -> bool:
        """A Python worker of Spark's, or the daemon they are forked from."""
        return "tidemill.spark.daemon" in self.command.split("\0")

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


def find_process(pid: int) -> Process | None:
    """The process with that number; the dead that nobody has waited for do not count."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else Process(pid, int(parent), int(rest[17]), command)


def descendants(pid: int) -> list[Process]:
    """Children, their children and so on."""
    everyone = list(_all())
    found: list[Process] = []
    parents = {pid}
    while parents:
        children = [process for process in everyone if process.parent in parents]
        found.extend(children)
        parents = {child.pid for child in children}
    return found


def serving(supervisor: int) -> Process:
    """The process that answers requests: the child of the supervisor that `tidemill serve` is."""
    (found,) = (process for process in _all() if process.parent == supervisor)
    return found


def processes_with(text: str) -> list[str]:
    """The command lines of processes that were started with the text in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment, command = (process / "environ").read_text(errors="replace"), process / "cmdline"
            if text in environment:
                found.append(command.read_text())
        except OSError:
            continue
    return found


def _all() -> Iterator[Process]:
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (process := find_process(int(entry))) is not None:
            yield process
