"""Stops the process when its parent is gone, which closes standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import Thread, Timer

GRACE_SECONDS = 10.0


def stop_with_stdin(stop: Callable[[], None], wake: Callable[[], None] | None = None) -> None:
    """Calls `stop` when standard input closes, and exits if that takes too long.

    Until then, any input calls `wake`.
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
