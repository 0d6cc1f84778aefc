"""Calls of functions that wait: for one another, or until a test lets them go."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PATIENCE_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.02


@dataclass(frozen=True)
class Meeting:
    """A call waits here until so many processes are in it at the same time."""

    folder: str
    size: int

    def attend(self) -> bool:
        """Whether enough came while this process waited."""
        Path(self.folder).mkdir(exist_ok=True)
        Path(self.folder, str(os.getpid())).touch()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(os.listdir(self.folder)) < self.size:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_SECONDS)
        return True


@dataclass(frozen=True)
class Gate:
    """A call waits here until the test opens it; for good, if it is never opened."""

    path: str

    def wait(self) -> None:
        while os.path.exists(self.path):
            time.sleep(LOOK_SECONDS)

    def shut(self) -> None:
        Path(self.path).touch()

    def open(self) -> None:
        Path(self.path).unlink(missing_ok=True)
