"""Runs Geneva's own client against a server of this folder: `make interop`.

Words as arguments choose the scenarios whose title has one of them. With `--record`, and without words, what
the client sends is written to `tests/data/geneva_requests.jsonl`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from tests.conftest import start_server
from tests.interop.geneva.recording import Recorder, recording

FOLDER: Final = Path(__file__).resolve().parents[3]
# Geneva is proprietary: it is used as any user would, apart from everything else here.
PACKAGE: Final = "geneva==0.17.0"
ENVIRONMENT: Final = FOLDER / "build" / "geneva"
RECORDING: Final = FOLDER / "tests" / "data" / "geneva_requests.jsonl"
SCENARIOS: Final = ("scenarios", "query_view_scenarios", "function_view_scenarios")
SCENARIO: Final = re.compile(r"^    def scenario_(\w+)\(", re.MULTILINE)
# Views that refresh themselves are looked after at once.
SETTINGS: Final = {
    "TIDEMILL_AUTO_REFRESH_POLL_SECONDS": "0.5",
    "TIDEMILL_AUTO_REFRESH_COOLDOWN_SECONDS": "0.5",
}


def main(*arguments: str) -> int:
    wanted = [argument for argument in arguments if argument != "--record"]
    if wanted and len(wanted) < len(arguments):
        sys.exit("--record is for all scenarios; leave the words out")
    titles = {name: titles_in(name) for name in SCENARIOS}
    for word in wanted:
        if not any(word in title for found in titles.values() for title in found):
            sys.exit(f"no scenario has {word!r} in its title")
    chosen = [
        name
        for name, found in titles.items()
        if not wanted or any(word in title for word in wanted for title in found)
    ]
    python = prepared()
    with tempfile.TemporaryDirectory(prefix="tidemill-interop-") as folder:
        server = start_server(Path(folder) / "lake", **SETTINGS)
        log, recorder = Path(folder) / "client.log", Recorder(Path(folder) / "scenario")
        # Functions remember the file that they are from: a recording shall not tell where this folder is.
        (Path(folder) / "source").symlink_to(FOLDER)
        try:
            with log.open("wb") as errors, recording(server.url, recorder) as url:
                codes = [_run(python, name, [url, *wanted], Path(folder), errors) for name in chosen]
        finally:
            server.stop()
        if len(wanted) < len(arguments) and not any(codes):
            recorder.write(RECORDING)
        if any(codes):
            print(f"What the client said last:\n{log.read_text(errors='replace')[-4000:]}")
        return max(codes)


def titles_in(name: str) -> list[str]:
    """Read from the text: only the client's own environment can import it."""
    found = SCENARIO.findall((Path(__file__).parent / f"{name}.py").read_text())
    return [title.replace("_", " ") for title in found]


def _run(python: Path, name: str, arguments: Sequence[str], folder: Path, errors: IO[bytes]) -> int:
    command = [str(python), "-m", f"tests.interop.geneva.{name}", *arguments]
    added = {"PYTHONPATH": str(folder / "source"), "TIDEMILL_SCENARIO_FILE": str(folder / "scenario")}
    environment = os.environ | added
    return subprocess.run(command, stderr=errors, cwd=folder, env=environment, check=False).returncode


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
