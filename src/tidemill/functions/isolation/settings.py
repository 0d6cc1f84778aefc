"""Where functions are called: in the Python process of the task itself, or in a child of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Isolation(StrEnum):
    """TASK trusts the function: it runs beside our own code and sees what that sees."""

    TASK = "none"
    PROCESS = "process"


@dataclass(frozen=True)
class FunctionHost:
    """How the processes for functions are made.

    Packages are installed below `environments_root`, one folder for each set of them. `memory_bytes` bounds
    the address space of a child. `command_prefix` is put before the command that starts the children's
    ancestor, to take rights away from it.
    """

    isolation: Isolation = Isolation.PROCESS
    environments_root: str = ""
    memory_bytes: int | None = None
    command_prefix: tuple[str, ...] = ()
