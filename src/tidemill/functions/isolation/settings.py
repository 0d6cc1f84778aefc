"""Isolation settings: whether functions run in the task's process or in children, and their limits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Isolation(StrEnum):
    """TASK trusts the function: it runs in the process of the task and sees its credentials."""

    TASK = "none"
    PROCESS = "process"


@dataclass(frozen=True)
class FunctionHost:
    """Where functions run, and how their processes are started.

    Packages are installed below `environments_root`, one folder per set of packages. `memory_bytes` limits
    the address space of a child. `command_prefix` goes before the command of the zygote, to drop privileges.
    """

    isolation: Isolation = Isolation.PROCESS
    environments_root: str = ""
    memory_bytes: int | None = None
    command_prefix: tuple[str, ...] = ()
