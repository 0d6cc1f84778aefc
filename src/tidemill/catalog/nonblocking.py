"""Lets a caller that cannot wait try an operation first: whatever may take long refuses to begin."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TakesTime(Exception):
    """Not an error: the same operation has to be run again where it may wait."""


class _Thread(threading.local):
    is_in_haste = False


_thread = _Thread()


@contextmanager
def in_haste() -> Iterator[None]:
    """For this thread and this block: what would wait for others or for much data raises TakesTime."""
    _thread.is_in_haste = True
    try:
        yield
    finally:
        _thread.is_in_haste = False


def is_in_haste() -> bool:
    return _thread.is_in_haste


def may_take_time() -> None:
    """Called before anything that may take long, and before it has had an effect that is not repeatable."""
    if _thread.is_in_haste:
        raise TakesTime
