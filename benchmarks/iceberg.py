"""Compares requests per second with Apache Iceberg's own REST server, in the same run."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.catalog import start_tidemill
from benchmarks.iceberg_tree import TABLES, VIEWS, Peer, fill, replace_view, round_robin, set_property, shares
from benchmarks.wire import Answer, drive, request_bytes
from tests.interop.iceberg.maven import VERSION, JarsMissing
from tests.interop.iceberg.reference_server import running_reference_server

OURS: Final = "tidemill"
THEIRS: Final = f"RESTCatalogServer {VERSION}"
# A commit may lose a race; other failures are counted together with lost races.
COMMIT_ANSWERS: Final = frozenset({200, 409, 429, 500, 502, 503, 504})
Lanes = Callable[[Peer], list[Iterator[bytes]]]


@dataclass(frozen=True)
class Operation:
    title: str
    lanes: Lanes
    answers: frozenset[int]

    @property
    def is_commit(self) -> bool:
        return self.answers is COMMIT_ANSWERS


@dataclass
class Measured:
    """The results of one server for one operation, over all rounds."""

    rates: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused: Counter[int] = field(default_factory=Counter)
    done: int = 0
    file_bytes: int = 0
    stored_bytes: int = 0

    def seen(self, _: int, answer: Answer) -> None:
        self.seconds.append(answer.seconds)
        if answer.status in (200, 204, 304):
            self.done += 1
        else:
            self.refused[answer.status] += 1

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    def percentile(self, percent: int) -> str:
        ordered = sorted(self.seconds)
        return f"{1000 * ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]:.1f}"

    def refusals(self) -> str:
        return ", ".join(f"{times} x {status}" for status, times in sorted(self.refused.items())) or "none"


@dataclass(frozen=True)
class Options:
    connections: int
    seconds: float
    rounds: int
    processes: int


def reads(method: str, paths: Sequence[str]) -> Lanes:
    def lanes(peer: Peer) -> list[Iterator[bytes]]:
        ready = {path: request_bytes(method, peer.path(path)) for path in paths}
        return _walks(peer, ready)

    return lanes


def unchanged_loads(peer: Peer) -> list[Iterator[bytes]]:
    """Loads tables as a client that already has the newest state of each."""
    ready = {}
    for path in TABLES:
        tag = peer.ask(request_bytes("GET", peer.path(path))).header("etag")
        if not tag:
            raise SystemExit(f"{peer.title} sends no ETag")
        ready[path] = request_bytes("GET", peer.path(path), headers={"if-none-match": tag})
    return _walks(peer, ready)


def commits(paths: Sequence[str], request: Callable[[Peer, str, int], bytes]) -> Lanes:
    numbers = count(1000)

    def lanes(peer: Peer) -> list[Iterator[bytes]]:
        return [
            round_robin(share, lambda path, number: request(peer, path, number), numbers)
            for share in shares(paths, peer.connections)
        ]

    return lanes


def contended(path: str) -> Lanes:
    numbers = count(1_000_000)

    def lanes(peer: Peer) -> list[Iterator[bytes]]:
        def replaced(path: str, number: int) -> bytes:
            return replace_view(peer, path, number)

        return [round_robin([path], replaced, numbers) for _ in range(peer.connections)]

    return lanes


def _walks(peer: Peer, ready: Mapping[str, bytes]) -> list[Iterator[bytes]]:
    """Every connection cycles through all paths, each from a different start."""
    paths = list(ready)
    starts = [number * len(paths) // peer.connections for number in range(peer.connections)]
    return [
        round_robin([*paths[start:], *paths[:start]], lambda path, _: ready[path], count())
        for start in starts
    ]


OPERATIONS: Final = (
    Operation("HEAD table", reads("HEAD", TABLES), frozenset({200, 204})),
    Operation("HEAD view", reads("HEAD", VIEWS), frozenset({200, 204})),
    Operation("loadTable", reads("GET", TABLES), frozenset({200})),
    Operation("loadView", reads("GET", VIEWS), frozenset({200})),
    Operation("loadTable, unchanged (304)", unchanged_loads, frozenset({304})),
    Operation("replaceView, distinct views", commits(VIEWS, replace_view), COMMIT_ANSWERS),
    Operation("updateTable, distinct tables", commits(TABLES, set_property), COMMIT_ANSWERS),
    Operation("replaceView, one view", contended(VIEWS[0]), COMMIT_ANSWERS),
)
Results = dict[tuple[str, str], Measured]


def compare(peers: Sequence[Peer], options: Options) -> Results:
    results = {(peer.title, operation.title): Measured() for peer in peers for operation in OPERATIONS}
    for number in range(options.rounds + 1):
        # The order alternates, so that a machine that slows down favours no server.
        for peer in peers if number % 2 else reversed(peers):
            for operation in OPERATIONS:
                # The first round is a warm-up.
                found = results[peer.title, operation.title] if number else Measured()
                _measure(peer, operation, options.seconds, found)
    return results


def _measure(peer: Peer, operation: Operation, seconds: float, found: Measured) -> None:
    lanes = operation.lanes(peer)
    files, stored, versions = _file_bytes(peer, operation), _stored_bytes(peer.pid), _newest_version(peer)
    done, answered = found.done, len(found.seconds)
    rate = drive(peer.port, lanes, seconds, found.seen, operation.answers)
    done, answered = found.done - done, len(found.seconds) - answered
    found.rates.append(rate * done / answered)
    found.file_bytes += _file_bytes(peer, operation) - files
    found.stored_bytes += _stored_bytes(peer.pid) - stored
    kept = _newest_version(peer) - versions
    if operation is OPERATIONS[-1] and kept != done:
        raise SystemExit(f"{peer.title} confirmed {done} replaces of a view and kept {kept}")


def _newest_version(peer: Peer) -> int:
    """The current version id of a view; every replace with a new definition adds one."""
    metadata = json.loads(peer.ask(request_bytes("GET", peer.path(VIEWS[0]))).body)["metadata"]
    version: int = metadata["current-version-id"]
    return version


def _file_bytes(peer: Peer, operation: Operation) -> int:
    if not operation.is_commit:
        return 0
    return sum(path.stat().st_size for path in peer.folder.rglob("*.metadata.json"))


def _stored_bytes(pid: int) -> int:
    """Bytes that the process and its children have written to storage; 0 if Linux does not report it."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        threads = list(Path(f"/proc/{pid}/task").glob("*/children"))
        children = [child for thread in threads for child in thread.read_text().split()]
    except OSError:
        return 0
    own = dict(line.split(": ") for line in lines)
    return int(own["write_bytes"]) + sum(_stored_bytes(int(child)) for child in children)


def show(peers: Sequence[Peer], results: Results, options: Options) -> None:
    rounds = f"{options.connections} connections, median of {options.rounds} alternating rounds"
    report = Table(title=f"{len(TABLES)} tables, {len(VIEWS)} views, {rounds}")
    for heading in ("", "server", "per second", "p50 ms", "p99 ms", "ratio", "refused", "bytes a commit"):
        report.add_column(heading, no_wrap=True)
    for operation in OPERATIONS:
        beside = results[peers[-1].title, operation.title].rate
        for peer in peers:
            found = results[peer.title, operation.title]
            ratio = f"{found.rate / beside:.2f}x" if peer is not peers[-1] else ""
            name = operation.title if peer is peers[0] else ""
            report.add_row(
                *(name, peer.title, f"{found.rate:,.0f}", found.percentile(50), found.percentile(99), ratio),
                *_commit_columns(operation, found),
            )
    Console(width=150).print(report)


def _commit_columns(operation: Operation, found: Measured) -> tuple[str, str]:
    if not operation.is_commit:
        return ("", "")
    done = max(found.done, 1)
    stored = f", {found.stored_bytes // done:,} to storage" if found.stored_bytes else ""
    return (found.refusals(), f"{found.file_bytes // done:,} of metadata{stored}")


@contextmanager
def _ours(folder: Path, options: Options) -> Iterator[Peer]:
    server = start_tidemill(folder / "tidemill", options.processes)
    warehouse = folder / "tidemill" / "warehouse"
    yield Peer(OURS, server.port, "/iceberg", warehouse, server.serving_pid, options.connections)
    server.stop()


@contextmanager
def _theirs(folder: Path, options: Options) -> Iterator[Peer]:
    with running_reference_server(folder / "reference") as server:
        yield Peer(THEIRS, server.port, "", server.warehouse, server.process.pid, options.connections)


def _peers(stack: ExitStack, folder: Path, options: Options, *, with_reference: bool) -> list[Peer]:
    peers = [stack.enter_context(_ours(folder, options))]
    if with_reference:
        try:
            peers.append(stack.enter_context(_theirs(folder, options)))
        except JarsMissing as missing:
            print(f"Without Iceberg's own server: {missing}")
    return peers


def _sizes(peer: Peer) -> str:
    table, view = (len(peer.ask(request_bytes("GET", peer.path(paths[0]))).body) for paths in (TABLES, VIEWS))
    return f"{peer.title}: a table answers with {table:,} bytes, a view with {view:,}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.5, help="duration of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, after one warm-up round")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes of tidemill")
    parser.add_argument("--no-reference", action="store_true", help="do not measure Iceberg's own server")
    given = vars(parser.parse_args())
    with_reference = not given.pop("no_reference")
    options = Options(**given)
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder, ExitStack() as stack:
        peers = _peers(stack, Path(folder), options, with_reference=with_reference)
        for peer in peers:
            fill(peer)
            print(_sizes(peer))
        show(peers, compare(peers, options), options)
    busy, cores = os.getloadavg()[0], os.cpu_count() or 1
    print(
        f"{cores} cores, load {busy:.1f} over the last minute, client and servers included; "
        f"tidemill with {options.processes} processes and SQLite on disk, the other with SQLite in memory. "
        "Compare within a run only."
    )


if __name__ == "__main__":
    main()
