"""Many and long histories of every kind, share by share: `python -m tests.histories.deep`.

A share is a few histories that are drawn by its number. What has passed is noted in a log for each kind, with
a digest of the code that the histories run: a run that was stopped goes on where it was, also at another
commit, as long as that code is the same. A share that fails is written down with the history, and the next
one is taken. Without a limit it goes on until it is stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from hypothesis.stateful import RuleBasedStateMachine

from tests.histories.backfills import BackfillHistory, ForeignBackfillHistory
from tests.histories.settings import follow_new
from tests.histories.test_foreign_histories import ForeignChunkerHistory, ForeignQueryHistory
from tests.histories.view_kinds import ALL

STEPS: Final[Mapping[type[RuleBasedStateMachine], int]] = {
    BackfillHistory: 25,
    ForeignBackfillHistory: 25,
    **dict.fromkeys((*ALL, ForeignChunkerHistory, ForeignQueryHistory), 40),
}
KINDS: Final = {machine.__name__: machine for machine in STEPS}
# Small enough for the time limit of one test, also on a slow machine.
EXAMPLES: Final = 20
# 5,000 histories of each kind.
SHARES: Final = 250
ROOT: Final = Path(__file__).parents[2]
# Code that no history runs.
BESIDE: Final = ("cli", "console", "iceberg", "protocols", "sdk")


class HistoryLog:
    """The shares of one kind that have been followed, a line for each."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._path = folder / f"deep-{kind}.log"

    def has_passed(self, share: int) -> bool:
        return any(
            entry["share"] == share and entry["code"] == code_digest() and not entry["failed"]
            for entry in self._entries()
        )

    def has_followed(self, share: int) -> bool:
        return any(entry["share"] == share and entry["code"] == code_digest() for entry in self._entries())

    def note(self, **entry: Any) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps({"commit": commit(), "code": code_digest(), **entry}) + "\n")

    def _entries(self) -> Iterator[dict[str, Any]]:
        if self._path.exists():
            yield from map(json.loads, self._path.read_text().splitlines())


def follow(kind: str, share: int, log: HistoryLog) -> None:
    """Follows a share and notes how it went. Raises what the histories raise."""
    began_at, machine = time.monotonic(), KINDS[kind]
    entry: dict[str, Any] = {"share": share, "failed": 0, "histories": EXAMPLES, "steps": 0}
    try:
        followed = follow_new(machine, share, EXAMPLES, STEPS[machine])
        entry |= {"histories": followed.histories, "steps": followed.steps}
    except Exception:
        entry |= {"failed": 1, "histories": 0}
        raise
    finally:
        log.note(**entry, seconds=round(time.monotonic() - began_at, 1))


@cache
def code_digest() -> str:
    """Changes with everything that histories run or are made from."""
    digest = sha256()
    source = ROOT / "src" / "tidemill"
    own = [path for path in source.rglob("*.py") if path.relative_to(source).parts[0] not in BESIDE]
    for path in sorted([*own, *(ROOT / "tests").glob("*.py"), *Path(__file__).parent.glob("*.py")]):
        if not path.name.startswith("test_") and path != Path(__file__):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, default=ROOT / ".deep", help="folder of the logs")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--shares", type=int, default=SHARES)
    chosen = parser.parse_args()
    failures = 0
    for share in range(chosen.shares):
        for kind in chosen.kinds:
            log = HistoryLog(chosen.log, kind)
            if log.has_followed(share):
                continue
            said = io.StringIO()
            try:
                with contextlib.redirect_stdout(said):
                    follow(kind, share, log)
            except Exception:  # noqa: BLE001  whatever a history finds is written down
                failures += 1
                text = f"{said.getvalue()}\n{traceback.format_exc()}"
                (chosen.log / f"deep-{kind}-{code_digest()}-{share}.failure").write_text(text)
            sys.stdout.write(f"{kind} {share}: {failures} shares failed so far\n")
            sys.stdout.flush()
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
