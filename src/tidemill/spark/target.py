"""Where Spark runs, as values that need no import of Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LOCAL: Final = re.compile(r"local(\[(?P<threads>\*|[1-9]\d*)(, *[1-9]\d*)?\])?")
CONNECT: Final = "sc://"
SCHEMES: Final = ("spark://", CONNECT, "k8s://")
MASTERS: Final = "local, local[N], local[*], spark://host:port, sc://host:port, yarn or k8s://..."


@dataclass(frozen=True)
class SparkTarget:
    """A Spark master and its configuration; `slots` is the number of concurrent tasks."""

    master: str
    scratch: Path
    config: Mapping[str, str] = field(default_factory=dict)
    slots: int | None = None

    @property
    def is_local(self) -> bool:
        return LOCAL.fullmatch(self.master) is not None

    @property
    def is_connect(self) -> bool:
        return self.master.startswith(CONNECT)

    @property
    def known_slots(self) -> int | None:
        """The configured slots, or those in the master URL; None if only the cluster knows."""
        return self.slots or slots_of(self.master)


def is_master(text: str) -> bool:
    """Whether the text is a supported master URL."""
    has_scheme = any(text.startswith(scheme) and text != scheme for scheme in SCHEMES)
    return has_scheme or text == "yarn" or LOCAL.fullmatch(text) is not None


def slots_of(master: str) -> int | None:
    """Number of concurrent tasks of a local master; None for other masters."""
    local = LOCAL.fullmatch(master)
    if local is None:
        return None
    threads = local["threads"] or "1"
    return _cores() if threads == "*" else int(threads)


def _cores() -> int:
    """The cores available to this process, if the system reports them, or else all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
