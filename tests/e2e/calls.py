"""What functions tell a test from wherever they run, and what it tells them: small files."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CallLog:
    """One line per call of a function; the worker is on the same machine."""

    path: str

    def note(self, what: object) -> None:
        log = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(log, f"{what}\n".encode())
        finally:
            os.close(log)

    def lines(self) -> list[str]:
        file = Path(self.path)
        return file.read_text().splitlines() if file.exists() else []

    def count(self) -> int:
        return len(self.lines())

    def take(self) -> list[str]:
        """The calls since the last look, sorted: in which order tasks run is not said."""
        found = sorted(self.lines())
        Path(self.path).unlink(missing_ok=True)
        return found


@dataclass(frozen=True)
class Brake:
    """Slows a function down for as long as it is on."""

    path: str
    seconds: float = 0.005

    def pause(self) -> None:
        if os.path.exists(self.path):
            time.sleep(self.seconds)

    def put_on(self) -> None:
        Path(self.path).touch()

    def release(self) -> None:
        Path(self.path).unlink(missing_ok=True)
