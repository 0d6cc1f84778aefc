"""Lets a thread that must not block try an operation first.

The HTTP server runs quick handlers on its event loop inside `nonblocking()`. Whatever may block calls
`may_block()` first, which raises `WouldBlock` there and does nothing elsewhere. The server then runs the same
handler again in a thread, so everything before a call to `may_block()` must be repeatable. See decision 13.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class WouldBlock(Exception):
    """Not an error: the operation must run again in a thread that may block."""


class _Thread(threading.local):
    is_nonblocking = False


_thread = _Thread()


@contextmanager
def nonblocking() -> Iterator[None]:
    """Marks this thread for the block: `may_block()` raises in it."""
    _thread.is_nonblocking = True
    try:
        yield
    finally:
        _thread.is_nonblocking = False


def is_nonblocking() -> bool:
    return _thread.is_nonblocking


def may_block() -> None:
    """Call this before anything that may take long. Raises WouldBlock in a thread that must not block."""
    if _thread.is_nonblocking:
        raise WouldBlock
