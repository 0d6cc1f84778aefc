"""The command line in a process of its own, as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def tidemill_command(
    *arguments: str, cwd: Path | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TIDEMILL_")}
    return subprocess.run(
        [sys.executable, "-m", "tidemill", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**inherited, "COLUMNS": "200", **(environment or {})},
        timeout=120,
        check=False,
    )


def printed(done: subprocess.CompletedProcess[str]) -> str:
    """What a command that went well printed."""
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(printed(done))
