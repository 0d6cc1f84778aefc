"""Limits on the size of requests and on how many run at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Limits:
    """`waiting_threads` serve long polls, which would otherwise occupy the threads of all other requests.

    `runs_quick_on_loop` is for servers whose database and files are on the same machine: quick requests run
    on the event loop first, before they get a thread.
    """

    json_bytes: int = MIB
    envelope_bytes: int = 64 * MIB
    arrow_bytes: int = GIB
    decoded_arrow_bytes: int = 512 * MIB
    threads: int = 40
    waiting_threads: int = 256
    runs_quick_on_loop: bool = False
