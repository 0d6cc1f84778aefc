"""How much a request may bring and how many requests are worked on at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Limits:
    """`waiting_threads` serve long polls, which would otherwise take all threads from everybody else.

    `tries_at_once` is for servers whose database and files are on the same machine: reads that find all they
    need there are answered without a thread.
    """

    json_bytes: int = MIB
    envelope_bytes: int = 64 * MIB
    arrow_bytes: int = GIB
    decoded_arrow_bytes: int = 512 * MIB
    threads: int = 40
    waiting_threads: int = 256
    tries_at_once: bool = False
