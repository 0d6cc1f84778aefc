"""Compares queries in processes of their own with queries in the server itself, over HTTP, in one run."""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx
import pyarrow as pa

from benchmarks.catalog import NAMESPACE, Rates, Server, show, start_tidemill
from benchmarks.wire import drive, request_bytes

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
IN_SERVER: Final = {"TIDEMILL_QUERY_PROCESSES": "0"}
LANES: Final = (1, 8)
FILTER: Final = "id >= 500 AND id < 510"


def requests(rows: int) -> Mapping[str, bytes]:
    table = f"/v1/table/{NAMESPACE}$rows"
    return {
        "10 rows by filter": request_bytes(
            "POST", f"{table}/query", {"filter": FILTER, "k": 10, "vector": {}}
        ),
        "count by filter": request_bytes("POST", f"{table}/count_rows", {"predicate": FILTER}),
        f"all {rows:,} rows": request_bytes("POST", f"{table}/query", {"k": rows, "vector": {}}),
        "delete of no row": request_bytes("POST", f"{table}/delete", {"predicate": "id < 0"}),
    }


def fill(server: Server, rows: int) -> None:
    table = pa.table({"id": range(rows), "text": [f"row {number}" for number in range(rows)]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    url = f"http://127.0.0.1:{server.port}/v1/table/{NAMESPACE}$rows/create"
    httpx.post(url, content=sink.getvalue().to_pybytes(), headers={"content-type": ARROW_STREAM}, timeout=60)


def compare(folder: Path, rows: int, seconds: float, rounds: int, beside: str | None) -> list[Rates]:
    ours = start_tidemill(folder / "processes", 1)
    if beside is None:
        other = start_tidemill(folder / "server", 1, variables=IN_SERVER)
    else:
        other = start_tidemill(folder / "beside", 1, beside)
    for server in (ours, other):
        fill(server, rows)
    named = requests(rows)
    measured = {(name, lanes): Rates(f"{name}, {lanes} at a time") for name in named for lanes in LANES}
    for number in range(rounds + 1):
        for (name, lanes), rates in measured.items():
            # The order alternates, so that a machine that slows down favours neither; the first is a warm-up.
            for server in (ours, other) if number % 2 else (other, ours):
                rate = drive(server.port, [itertools.repeat(named[name])] * lanes, seconds)
                if number:
                    (rates.first if server is ours else rates.second).append(rate)
    for server in (ours, other):
        server.stop()
    return list(measured.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--beside",
        metavar="PYTHON",
        help="Python of an environment with another Tidemill, measured instead of queries in the server",
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
        measured = compare(Path(folder), given.rows, given.seconds, given.rounds, given.beside)
    other = "in the server" if given.beside is None else "the other tidemill"
    title = f"Queries of {given.rows:,} rows, median of {given.rounds} alternating rounds"
    show(title, ("in processes", other), measured)


if __name__ == "__main__":
    main()
