"""Waiting for something to be so: look again and again, up to a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

POLL_SECONDS: Final = 0.05


def eventually(look: Callable[[], T | None], what: str, timeout: float = 60.0) -> T:
    """What `look` gives as soon as it is true; fails with `what` if it is not in time."""
    deadline = time.monotonic() + timeout
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout:g} s: {what}")
        time.sleep(POLL_SECONDS)


def settled(look: Callable[[], T], what: str, quiet: float = 1.0, timeout: float = 30.0) -> T:
    """What `look` gives once it has stayed the same for `quiet` seconds."""
    value, since = look(), time.monotonic()

    def is_quiet() -> bool:
        nonlocal value, since
        now = look()
        if now != value:
            value, since = now, time.monotonic()
        return time.monotonic() - since >= quiet

    eventually(is_quiet, f"{what} stays the same", timeout)
    return value
