"""Runs Geneva's own client against a server of this folder: `make interop`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from tests.conftest import start_server

FOLDER: Final = Path(__file__).resolve().parents[3]
# Geneva is proprietary: it is used as any user would, apart from everything else here.
PACKAGE: Final = "geneva==0.17.0"
ENVIRONMENT: Final = FOLDER / "build" / "geneva"
SCENARIOS: Final = ("scenarios", "query_view_scenarios", "function_view_scenarios")
# Views that refresh themselves are looked after at once.
SETTINGS: Final = {
    "TIDEMILL_AUTO_REFRESH_POLL_SECONDS": "0.5",
    "TIDEMILL_AUTO_REFRESH_COOLDOWN_SECONDS": "0.5",
}


def main(*wanted: str) -> int:
    python = prepared()
    with tempfile.TemporaryDirectory(prefix="tidemill-interop-") as folder:
        server = start_server(Path(folder) / "lake", **SETTINGS)
        log = Path(folder) / "client.log"
        try:
            with log.open("wb") as errors:
                codes = [_run(python, name, [server.url, *wanted], errors) for name in SCENARIOS]
        finally:
            server.stop()
        if any(codes):
            print(f"What the client said last:\n{log.read_text(errors='replace')[-4000:]}")
        return max(codes)


def _run(python: Path, name: str, arguments: Sequence[str], errors: IO[bytes]) -> int:
    command = [str(python), "-m", f"tests.interop.geneva.{name}", *arguments]
    return subprocess.run(command, stderr=errors, cwd=FOLDER, check=False).returncode


def prepared() -> Path:
    """The Python of the environment, which is made when it is not there or has another version in it."""
    python, stamp = ENVIRONMENT / "bin" / "python", ENVIRONMENT / ".stamp"
    wanted = f"{PACKAGE} {sys.version}"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"Setting up {ENVIRONMENT.relative_to(FOLDER)} with {PACKAGE} (once) ...", flush=True)
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], check=True)
        stamp.write_text(wanted)
    return python


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
