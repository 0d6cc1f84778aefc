"""Compares requests per second on the catalog's hot paths with pylance's own REST server, in the same run.

Also the catalog with many tables and with few, and with and without authentication. What the audit costs is
measured as CPU time of the server, which a busy machine distorts less than rates.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

import lance
import lance.namespace
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import tidemill
from benchmarks.wire import NO_LIMIT, Answer, drive, request_bytes

NAMESPACE: Final = "bench"
# Per connection and round.
DESCRIBES: Final = 300
NO_AUDIT: Final = {"TIDEMILL_AUDIT_ROWS": "false", "TIDEMILL_AUDIT_LINES": "false"}
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
OWNER: Final = {"owner": {"secret": "of-the-benchmark-alone"}}
KNOWN_EVERYWHERE_SECONDS: Final = 2.5
MAX_U64: Final = (1 << 64) - 1


class Template:
    """A real Lance table with a chain of real manifests; every table of the benchmark starts from it."""

    def __init__(self, folder: Path, versions: int) -> None:
        rows = pa.table({"id": pa.array([1, 2], pa.int64()), "text": ["a", "b"], "score": [0.1, 0.2]})
        self._path = folder / "template.lance"
        dataset = lance.write_dataset(rows, str(self._path), enable_stable_row_ids=True)
        for number in range(versions - 1):
            dataset.update_config({"step": str(number)})
        self._manifests = [
            (self._path / "_versions" / f"{MAX_U64 - version:020}.manifest").read_bytes()
            for version in range(1, versions + 1)
        ]

    def place_data(self, location: Path) -> None:
        (location / "_versions").mkdir(parents=True)
        shutil.copytree(self._path / "data", location / "data", copy_function=os.link)

    def stage(self, name: str, location: Path, version: int) -> bytes:
        """Writes the manifest as a committing client does; returns the request that commits it."""
        content = self._manifests[version - 1]
        staged = location / "_versions" / f"{MAX_U64 - version:020}.manifest-{uuid4()}"
        staged.write_bytes(content)
        body = {
            "id": [NAMESPACE, name],
            "version": version,
            "manifest_path": str(staged).removeprefix("/"),
            "manifest_size": len(content),
            "naming_scheme": "V2",
        }
        return request_bytes("POST", f"/v1/table/{NAMESPACE}${name}/version/create", body)


@dataclass
class Server:
    """A server process with its tables; it ends when its standard input is closed."""

    title: str
    process: subprocess.Popen[str]
    port: int
    locations: dict[str, Path] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)

    @property
    def serving_pid(self) -> int:
        """Of the process that answers: the child of the supervisor."""
        supervisor = self.process.pid
        return int(Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()[0])

    @property
    def cpu_seconds(self) -> float:
        """That the answering process has used; of a server with one process."""
        fields = Path(f"/proc/{self.serving_pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)

    def fill(self, names: Sequence[str], template: Template, connections: int) -> None:
        """Declares tables, writes their data and commits their first versions, as a client does."""
        shares = [names[start::connections] for start in range(connections)]
        waiting = [iter(share) for share in shares]

        def declared(lane: int, answer: Answer) -> None:
            made = json.loads(answer.body)
            if not made["managed_versioning"]:
                raise SystemExit(f"{self.title} does not manage versions")
            location = Path(made["location"].removeprefix("file://"))
            self.locations[next(waiting[lane])] = location
            template.place_data(location)

        lanes = [
            iter([request_bytes("POST", f"/v1/table/{NAMESPACE}${name}/declare", {}) for name in share])
            for share in shares
        ]
        drive(self.port, lanes, NO_LIMIT, declared)
        drive(self.port, self.commits(names, template, 1, connections), NO_LIMIT)

    def commits(
        self, names: Sequence[str], template: Template, each: int, connections: int
    ) -> list[Iterator[bytes]]:
        """Stages manifests and returns the requests; one lane per table keeps its versions in order."""
        lanes: list[list[bytes]] = [[] for _ in range(connections)]
        for _ in range(each):
            for index, name in enumerate(names):
                version = self.versions[name] = self.versions.get(name, 0) + 1
                staged = template.stage(name, self.locations[name], version)
                lanes[index % connections].append(staged)
        return [iter(lane) for lane in lanes]


def start_tidemill(
    root: Path, processes: int, python: str = sys.executable, variables: Mapping[str, str] | None = None
) -> Server:
    command = ["-m", "tidemill", "serve", "--port", "0", "--no-worker", "--exit-with-stdin"]
    options = ["--processes", str(processes), "--root", str(root)]
    return _start("tidemill", [*command, *options], root, python, variables or {})


def start_adapter(root: Path) -> Server:
    return _start("RestAdapter", ["-m", "benchmarks.catalog", "--serve-adapter", str(root)], root)


def _start(
    title: str,
    command: Sequence[str],
    root: Path,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
) -> Server:
    is_new = not root.exists()
    root.mkdir(parents=True, exist_ok=True)
    with (root / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [python, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "LANCE_LOG": "error", **(environment or {})},
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    if " at http://" not in line:
        raise SystemExit(f"{title} did not start:\n{(root / 'server.log').read_text()}")
    server = Server(title, process, int(line.strip().rpartition(":")[2]))
    if is_new:
        drive(server.port, [iter([request_bytes("POST", f"/v1/namespace/{NAMESPACE}/create", {})])], NO_LIMIT)
    return server


def serve_adapter(root: str) -> None:
    """Runs pylance's server over a directory; it manages versions for its clients, as ours does."""
    properties = {"root": root, "manifest_enabled": "true", "table_version_tracking_enabled": "true"}
    with lance.namespace.RestAdapter("dir", properties, host="127.0.0.1", port=0) as adapter:
        print(f"ready at http://127.0.0.1:{adapter.port}", flush=True)
        sys.stdin.read()


def describe_requests(names: Sequence[str], headers: Mapping[str, str] | None = None) -> list[bytes]:
    return [
        request_bytes("POST", f"/v1/table/{NAMESPACE}${name}/describe", {"id": [NAMESPACE, name]}, headers)
        for name in names
    ]


def describes(
    names: Sequence[str], headers: Mapping[str, str] | None = None, limit: int | None = None
) -> Iterator[bytes]:
    return itertools.islice(_any_of(describe_requests(names, headers)), limit)


def version_lists(names: Sequence[str]) -> Iterator[bytes]:
    query = "delimiter=%24&limit=1&descending=true"
    return _any_of(
        [request_bytes("POST", f"/v1/table/{NAMESPACE}${name}/version/list?{query}") for name in names]
    )


def table_lists(limit: int) -> Iterator[bytes]:
    return itertools.repeat(request_bytes("GET", f"/v1/namespace/{NAMESPACE}/table/list?limit={limit}"))


def _any_of(ready: Sequence[bytes]) -> Iterator[bytes]:
    order = random.Random(7).choices(range(len(ready)), k=20_000)
    return (ready[index] for index in itertools.cycle(order))


@dataclass
class Rates:
    """The rates of two servers for one operation, round by round."""

    operation: str
    first: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)

    def row(self) -> tuple[str, ...]:
        ratios = [ours / theirs for ours, theirs in zip(self.first, self.second, strict=True)]
        return (
            self.operation,
            f"{statistics.median(self.first):,.0f}",
            f"{statistics.median(self.second):,.0f}",
            f"{statistics.median(ratios):.2f}x",
            f"{min(ratios):.2f}–{max(ratios):.2f}x",
        )


@dataclass(frozen=True)
class Options:
    tables: int
    many: int
    connections: int
    seconds: float
    rounds: int
    commits: int
    processes: int
    beside: str | None

    @property
    def all_rounds(self) -> int:
        """Includes the first round, which is a warm-up."""
        return self.rounds + 1


def table_names(count: int) -> list[str]:
    return [f"t{number:06d}" for number in range(count)]


def compare(options: Options, folder: Path) -> list[Rates]:
    """Measures the hot paths of our server and another one, on the same tables and manifests."""
    template = Template(folder, 1 + options.commits * options.all_rounds)
    names = table_names(options.tables)
    reads: dict[str, Callable[[], Iterator[bytes]]] = {
        "describe_table": lambda: describes(names),
        f"list_tables ({options.tables})": lambda: table_lists(options.tables),
        "version/list (latest)": lambda: version_lists(names),
    }
    measured = [Rates(name) for name in (*reads, "version/create")]
    ours = start_tidemill(folder / "tidemill", options.processes)
    if options.beside is None:
        theirs = start_adapter(folder / "adapter")
    else:
        theirs = start_tidemill(folder / "beside", options.processes, options.beside)
    for server in (ours, theirs):
        server.fill(names, template, options.connections)
    for number in range(options.all_rounds):
        # The order alternates, so that a machine that slows down favours neither server.
        for server in (ours, theirs) if number % 2 else (theirs, ours):
            rates = [
                drive(server.port, [lane() for _ in range(options.connections)], options.seconds)
                for lane in reads.values()
            ]
            commits = server.commits(names, template, options.commits, options.connections)
            rates.append(drive(server.port, commits, NO_LIMIT))
            if number:
                for found, rate in zip(measured, rates, strict=True):
                    (found.first if server is ours else found.second).append(rate)
    for server in (ours, theirs):
        server.stop()
    return measured


def scale(options: Options, folder: Path) -> Rates:
    """Measures random describes in a large catalog and in a small one."""
    template = Template(folder, 1)
    measured = Rates("describe_table")
    rates = {options.many: measured.first, options.tables: measured.second}
    servers = {size: start_tidemill(folder / f"tables-{size}", options.processes) for size in rates}
    for size, server in servers.items():
        server.fill(table_names(size), template, options.connections)
    for number in range(options.all_rounds):
        for size in rates if number % 2 else reversed(rates):
            lanes = [describes(table_names(size)) for _ in range(options.connections)]
            if not number:
                every = describe_requests(table_names(size))
                lanes = [iter(every[start :: options.connections]) for start in range(options.connections)]
            rate = drive(servers[size].port, lanes, options.seconds if number else NO_LIMIT)
            if number:
                rates[size].append(rate)
    for server in servers.values():
        server.stop()
    return measured


def guard(options: Options, folder: Path) -> list[Rates]:
    """Measures describes with authentication, by a key and by a token, and without.

    The caller is a client of the catalog that has a role with a grant on the namespace.
    """
    names, root, template = table_names(options.tables), folder / "guarded", Template(folder, 1)
    opened = start_tidemill(folder / "open", options.processes)
    for server in (opened, filled := start_tidemill(root, options.processes)):
        server.fill(names, template, options.connections)
    filled.stop()
    guarded = start_tidemill(root, options.processes, variables={"TIDEMILL_CLIENTS": json.dumps(OWNER)})
    key, token = _reader(f"http://127.0.0.1:{guarded.port}")
    headers = {"API key": {"x-api-key": key}, "token": {"authorization": f"Bearer {token}"}}
    measured = {name: Rates(f"describe_table, {name}") for name in headers}
    for number in range(options.all_rounds):
        for name, sent in headers.items():
            for server in (guarded, opened) if number % 2 else (opened, guarded):
                lanes = [describes(names, sent) for _ in range(options.connections)]
                rate = drive(server.port, lanes, options.seconds)
                if number:
                    rates = measured[name]
                    (rates.first if server is guarded else rates.second).append(rate)
    for server in (guarded, opened):
        server.stop()
    return list(measured.values())


def audit(options: Options, folder: Path) -> list[Rates]:
    """Measures requests per second of CPU time with audit rows and lines, and without either."""
    template, names = Template(folder, 1 + options.commits * options.all_rounds), table_names(options.tables)
    audited = start_tidemill(folder / "audited", 1)
    silent = start_tidemill(folder / "silent", 1, variables=NO_AUDIT)
    for server in (audited, silent):
        server.fill(names, template, options.connections)
    measured = {name: Rates(f"{name}, per CPU second") for name in ("describe_table", "version/create")}
    for number in range(options.all_rounds):
        for server in (audited, silent) if number % 2 else (silent, audited):
            described = [describes(names, limit=DESCRIBES) for _ in range(options.connections)]
            created = server.commits(names, template, options.commits, options.connections)
            counts = (DESCRIBES * options.connections, options.commits * options.tables)
            for rates, lanes, count in zip(measured.values(), (described, created), counts, strict=True):
                before = server.cpu_seconds
                drive(server.port, lanes, NO_LIMIT)
                if number:
                    rate = count / max(server.cpu_seconds - before, 1 / TICKS_PER_SECOND)
                    (rates.first if server is audited else rates.second).append(rate)
    for server in (audited, silent):
        server.stop()
    return list(measured.values())


def _reader(url: str) -> tuple[str, str]:
    """The key of a new client of the catalog, and a token for it. Other processes know them soon after."""
    with tidemill.connect(url, credential=f"owner:{OWNER['owner']['secret']}") as lake:
        made = lake.auth.create_client("reader")
        lake.auth.create_role("readers")
        lake.auth.add_member("readers", "reader")
        lake.auth.grant("read", role="readers", namespace=NAMESPACE)
    time.sleep(KNOWN_EVERYWHERE_SECONDS)
    with tidemill.connect(url, credential=made.api_key) as lake:
        return made.api_key, lake.auth.token()[0]


def show(title: str, headings: tuple[str, str], measured: Sequence[Rates]) -> None:
    report = Table(title=title)
    for heading in ("requests/s", *headings, "ratio", "in the rounds"):
        report.add_column(heading, no_wrap=True)
    for rates in measured:
        report.add_row(*rates.row())
    Console().print(report)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--many", type=int, default=10_000, help="number of tables in the large catalog")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.5, help="duration of each read measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=8, help="versions created per table and round")
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        help="processes of tidemill; pylance's server always uses all cores",
    )
    parser.add_argument(
        "--beside",
        metavar="PYTHON",
        help="Python of an environment with another Tidemill, measured instead of pylance's server",
    )
    parser.add_argument("--serve-adapter", metavar="ROOT", help=argparse.SUPPRESS)
    given = vars(parser.parse_args())
    if (root := given.pop("serve_adapter")) is not None:
        serve_adapter(root)
        return
    options = Options(**given)
    if options.many <= options.tables:
        parser.error("--many has to be more than --tables")
    rounds = f"{options.connections} connections, median of {options.rounds} alternating rounds"
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
        compared = compare(options, Path(folder) / "compare")
        other = "RestAdapter" if options.beside is None else "the other tidemill"
        show(f"{options.tables} tables, {rounds}", ("tidemill", other), compared)
        if options.beside is not None:
            return
        scaled = scale(options, Path(folder) / "scale")
        show(f"Size of the catalog, {rounds}", (f"{options.many:,} tables", f"{options.tables:,}"), [scaled])
        guarded = guard(options, Path(folder) / "guard")
        show(f"Authentication and authorization, {rounds}", ("auth on", "auth off"), guarded)
        audited = audit(options, Path(folder) / "audit")
        show(f"Audit, {rounds}", ("audit on", "audit off"), audited)
    busy, cores = os.getloadavg()[0], os.cpu_count() or 1
    print(
        f"{cores} cores, load {busy:.1f} over the last minute, client and servers included; "
        f"tidemill with {options.processes} processes. Compare within a run only."
    )


if __name__ == "__main__":
    main()
