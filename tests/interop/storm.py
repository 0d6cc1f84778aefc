"""A storm of commits: pylance writers in processes of their own, on one table, through several servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import lance
import pyarrow as pa
from lance.namespace import RestNamespace

ROOT: Final = Path(__file__).parents[2]
READY: Final = "ready\n"
SETTLED_SECONDS: Final = 0.5
UNKNOWN: Final = "unknown"
# What pylance says after 20 conflicts or 30 seconds: nothing was committed, and the caller may ask again.
GAVE_UP: Final = ("Too many concurrent writers", "Failed to commit the transaction after")


@dataclass(frozen=True)
class Storm:
    """How many writers commit how often."""

    writers: int
    commits: int

    @property
    def total(self) -> int:
        return self.writers * self.commits


@dataclass(frozen=True)
class Outcome:
    """What the writers met, and what is in the table and in the catalog afterwards."""

    storm: Storm
    seconds: float
    failures: Sequence[str]
    gave_up: int
    # Requests for a version, by the status of the answer.
    answers: Counter[int]
    rows: Sequence[int]
    versions: Sequence[int]
    manifests: Sequence[int]

    @property
    def conflicts(self) -> int:
        return self.answers[409]

    @property
    def unknown(self) -> list[str]:
        return [failure for failure in self.failures if UNKNOWN in failure.lower()]

    def __str__(self) -> str:
        rate = self.storm.total / self.seconds
        return (
            f"{self.storm.writers} writers x {self.storm.commits} commits in {self.seconds:.1f} s:"
            f" {rate:.0f} commits/s, {self.conflicts} conflicts resolved,"
            f" {self.gave_up} given up by pylance and asked again, {len(self.failures)} failures,"
            f" {len(self.unknown)} unknown results"
        )


def run(storm: Storm, urls: Sequence[str], logs: Sequence[Path], levels: list[str]) -> Outcome:
    """Makes the table, lets all writers loose at once and waits for them."""
    rest = RestNamespace(uri=urls[0])
    empty = pa.table({"id": pa.array([], pa.int64())})
    lance.write_dataset(empty, namespace_client=rest, table_id=levels, mode="create")
    writers = [_start(urls[number % len(urls)], levels, number, storm) for number in range(storm.writers)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == READY
    started = time.monotonic()
    # A writer starts when its standard input ends; what it met is its last line.
    ended = [_finished(writer) for writer in _released(writers)]
    seconds = time.monotonic() - started
    return _outcome(storm, seconds, ended, urls[0], levels, _settled_answers(logs))


def _start(url: str, levels: list[str], number: int, storm: Storm) -> subprocess.Popen[str]:
    arguments = [url, json.dumps(levels), str(number), str(storm.commits)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.interop.storm", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "LANCE_LOG": "error"},
    )


def _released(writers: Sequence[subprocess.Popen[str]]) -> Sequence[subprocess.Popen[str]]:
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    return writers


def _finished(writer: subprocess.Popen[str]) -> dict[str, Any]:
    assert writer.stdout is not None
    with writer.stdout as output:
        said = output.read()
    assert writer.wait() == 0, said
    report: dict[str, Any] = json.loads(said)
    return report


def _outcome(
    storm: Storm,
    seconds: float,
    reports: Sequence[dict[str, Any]],
    url: str,
    levels: list[str],
    answers: Counter[int],
) -> Outcome:
    dataset = lance.dataset(namespace_client=RestNamespace(uri=url), table_id=levels)
    return Outcome(
        storm=storm,
        seconds=seconds,
        failures=[failure for report in reports for failure in report["failures"]],
        gave_up=sum(report["gave_up"] for report in reports),
        answers=answers,
        rows=sorted(dataset.to_table()["id"].to_pylist()),
        versions=_versions(url, levels),
        manifests=[version["version"] for version in dataset.versions()],
    )


def _versions(url: str, levels: list[str]) -> list[int]:
    """All versions the catalog lists, page by page."""
    numbers: list[int] = []
    page: dict[str, Any] = {"page_token": ""}
    while "page_token" in page:
        parameters = {"page_token": page["page_token"]} if page["page_token"] else {}
        listing = f"{url}/v1/table/{'$'.join(levels)}/version/list"
        page = httpx.post(listing, params=parameters, timeout=60).json()
        numbers += [version["version"] for version in page["versions"]]
    return numbers


def _settled_answers(logs: Sequence[Path]) -> Counter[int]:
    """The servers log a request after they have answered it."""
    found = _version_answers(logs)
    while True:
        time.sleep(SETTLED_SECONDS)
        again = _version_answers(logs)
        if again == found:
            return found
        found = again


def _version_answers(logs: Sequence[Path]) -> Counter[int]:
    """The servers' own record of what they answered to requests for a version."""
    requests = [_event(line) for log in logs for line in log.read_text().splitlines()]
    return Counter(
        request["status"] for request in requests if request.get("route", "").endswith("/version/create")
    )


def _event(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def write(url: str, levels: list[str], number: int, commits: int) -> dict[str, Any]:
    """One writer: a row per commit, what failed, and how often pylance gave up and was asked again."""
    rest = RestNamespace(uri=url)
    print(READY, end="", flush=True)
    sys.stdin.read()
    failures: list[str] = []
    gave_up = 0
    for row in range(number * commits, (number + 1) * commits):
        while (failure := _append(rest, levels, row)) is not None and any(map(failure.__contains__, GAVE_UP)):
            gave_up += 1
        failures += [f"row {row}: {failure}"] if failure is not None else []
    return {"failures": failures, "gave_up": gave_up}


def _append(rest: RestNamespace, levels: list[str], row: int) -> str | None:
    try:
        lance.write_dataset(pa.table({"id": [row]}), namespace_client=rest, table_id=levels, mode="append")
    except Exception as error:  # noqa: BLE001 - every failure is a finding
        return str(error)
    return None


if __name__ == "__main__":
    address, path, position, count = sys.argv[1:]
    print(json.dumps(write(address, json.loads(path), int(position), int(count))))
