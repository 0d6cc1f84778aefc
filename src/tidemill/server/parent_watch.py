"""Ends with the parent: a process told to do so stops when its standard input closes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import Thread, Timer

GRACE_SECONDS = 10.0


def stop_with_stdin(stop: Callable[[], None], wake: Callable[[], None] | None = None) -> None:
    """Calls `stop` when standard input closes, and ends the process if that does not help.

    What comes before that means nothing but `wake`.
    """

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            if wake is not None:
                wake()
        last_resort = Timer(GRACE_SECONDS, os._exit, args=(1,))
        last_resort.daemon = True
        last_resort.start()
        stop()

    Thread(target=watch, name="stdin", daemon=True).start()
