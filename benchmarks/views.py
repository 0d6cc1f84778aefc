"""Compares warm refreshes of every kind of view after changes with full refreshes and LanceDB's own views."""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import lancedb
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import tidemill

CHANGES: Final = (0.0, 0.1, 1.0, 10.0, 50.0)
GROUPS: Final = 10_000
PARTITIONS: Final = 200
TEXTS: Final = ("a tide", "the old mill", "ebb and flow", "spring", "neap and slack water")
WARM_UPS: Final = 3
WARMING: Final = ("query", "group by")
# Changed rows are spread over the whole table.
STEP: Final = 1000


class Word(NamedTuple):
    position: int
    word: str


@tidemill.chunker
def words(text: str) -> Iterator[Word]:
    for position, word in enumerate(text.split()):
        yield Word(position, word)


@tidemill.udf
def length(text: str) -> int:
    return len(text)


TOTALS: Final = pa.schema(
    [pa.field("part", pa.int64()), pa.field("rows", pa.int64()), pa.field("sum", pa.float64())]
)


@tidemill.udtf(output=TOTALS)
def totals(source: Any) -> Iterator[pa.RecordBatch]:
    rows = source.to_arrow()
    grouped = rows.group_by("part").aggregate([("value", "count"), ("value", "sum")])
    yield from (
        pa.table([grouped["part"], grouped["value_count"], grouped["value_sum"]], schema=TOTALS).to_batches()
    )


@dataclass(frozen=True)
class Case:
    """A view, and whether LanceDB supports the same one."""

    define: Callable[[tidemill.Lake, tidemill.Table], Any]
    has_peer: bool = False


PROJECTION: Final = {"id": "id", "loud": "upper(text)"}
FILTER: Final = "value >= 0.1"
CASES: Final = {
    "query": Case(lambda lake, t: t.select("id", loud="upper(text)").where(FILTER), has_peer=True),
    "query with a function": Case(lambda lake, t: t.select("id", size=length)),
    "chunker": Case(lambda lake, t: t.select("id").chunk(words)),
    "udtf": Case(lambda lake, t: totals.over(t, inputs=["part", "value"])),
    "udtf by partition": Case(lambda lake, t: totals.over(t, inputs=["part", "value"], partition_by="part")),
    "group by": Case(
        lambda lake, t: lake.sql(
            "SELECT grp, count(*) AS n, sum(value) AS total, min(text) AS t FROM bench.source GROUP BY grp"
        )
    ),
    "join": Case(
        lambda lake, t: lake.sql(
            "SELECT s.id, s.text, n.name FROM bench.source AS s JOIN bench.names AS n ON s.grp = n.grp"
        )
    ),
}


def rows_of(count: int) -> pa.Table:
    random = np.random.default_rng(0)
    ids = np.arange(count)
    return pa.table(
        {
            "id": ids,
            "text": pa.array([TEXTS[i % len(TEXTS)] for i in range(count)]),
            "value": random.random(count),
            "grp": ids % GROUPS,
            "part": ids % PARTITIONS,
        }
    )


def names_of() -> pa.Table:
    return pa.table({"grp": np.arange(GROUPS), "name": [f"group {i}" for i in range(GROUPS)]})


def change(dataset: Any, percent: float, round_number: int) -> None:
    """Changes texts and values in that percentage of rows, spread over the whole table."""
    if percent:
        where = f"(id * 7919 + {round_number * 131}) % {STEP} < {int(percent * STEP / 100)}"
        dataset.update(
            {"text": f"concat('changed {round_number} ', text)", "value": "value + 0.001"}, where=where
        )


@contextmanager
def timed(into: list[float]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    into.append(time.perf_counter() - start)


@dataclass(frozen=True)
class Figures:
    """Seconds of full refreshes and of refreshes after changes, ours and LanceDB's."""

    full: float
    changed: Sequence[float]
    peer_full: float | None = None
    peer_changed: Sequence[float] = ()


class Ours:
    def __init__(self, lake: tidemill.Lake, rows: pa.Table, fragments: int) -> None:
        self._lake = lake
        lake.create_namespace("bench")
        size = -(-len(rows) // fragments)
        self._table = lake.create_table("bench.source", rows.slice(0, size))
        for start in range(size, len(rows), size):
            self._table.add(rows.slice(start, size))
        lake.create_table("bench.names", names_of())

    def warm_up(self, cases: Sequence[str]) -> None:
        """Refreshes each case a few times, because a worker's first scan and first statement are slower."""
        for name in cases:
            view = self._lake.create_materialized_view(
                "bench.warm", CASES[name].define(self._lake, self._table)
            )
            for _ in range(WARM_UPS):
                view.refresh(full=True).wait(timeout=1800)
            self._lake.drop_table("bench.warm")

    def measure(self, name: str, case: Case, repeats: int) -> tuple[float, list[float]]:
        view = self._lake.create_materialized_view(
            f"bench.{name.replace(' ', '_')}", case.define(self._lake, self._table)
        )
        view.refresh().wait(timeout=1800)
        changed: list[float] = []
        for percent in CHANGES:
            seconds: list[float] = []
            for number in range(repeats):
                change(self._table.to_lance(), percent, len(changed) * repeats + number)
                with timed(seconds):
                    view.refresh().wait(timeout=1800)
            changed.append(statistics.median(seconds))
        full: list[float] = []
        for _ in range(repeats):
            with timed(full):
                view.refresh(full=True).wait(timeout=1800)
        self._lake.drop_table(f"bench.{name.replace(' ', '_')}")
        return statistics.median(full), changed


class LanceDbViews:
    """The same query as a LanceDB view in a separate folder; a rebuild is its full refresh."""

    def __init__(self, folder: Path, rows: pa.Table, fragments: int) -> None:
        self._db = lancedb.connect(str(folder), storage_options={"new_table_enable_stable_row_ids": "true"})
        size = -(-len(rows) // fragments)
        self._table = self._db.create_table("source", rows.slice(0, size))
        for start in range(size, len(rows), size):
            self._table.add(rows.slice(start, size))

    def measure(self, repeats: int) -> tuple[float, list[float]]:
        view = self._db.create_materialized_view("view", "source", select=PROJECTION, where=FILTER)
        changed: list[float] = []
        for percent in CHANGES:
            seconds: list[float] = []
            for number in range(repeats):
                change(self._table.to_lance(), percent, len(changed) * repeats + number)
                self._table.checkout_latest()
                with timed(seconds):
                    view.refresh()
            changed.append(statistics.median(seconds))
        full: list[float] = []
        for _ in range(repeats):
            with timed(full):
                view.refresh(full=True)
        return statistics.median(full), changed


def show(console: Console, found: dict[str, Figures], rows: int) -> None:
    table = Table(title=f"Refreshes of {rows:,} source rows: seconds, and share of the own full refresh")
    table.add_column("view")
    table.add_column("full", justify="right")
    for percent in CHANGES:
        table.add_column(f"{percent:g} % changed", justify="right")
    for name, figures in found.items():
        table.add_row(name, f"{figures.full:.2f}", *(_share(s, figures.full) for s in figures.changed))
        if figures.peer_full is not None:
            shares = (_share(s, figures.peer_full) for s in figures.peer_changed)
            table.add_row(f"{name}, LanceDB's own", f"{figures.peer_full:.2f}", *shares)
            ratios = (f"{o / p:.2f}x" for o, p in zip(figures.changed, figures.peer_changed, strict=True))
            table.add_row("  ours / LanceDB's", f"{figures.full / figures.peer_full:.2f}x", *ratios)
    console.print(table)


def _share(seconds: float, full: float) -> str:
    return f"{seconds:.2f} ({100 * seconds / full:.0f} %)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--fragments", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", nargs="+", choices=sorted(CASES), default=list(CASES))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tidemill-bench-"))
    rows = rows_of(given.rows)
    found: dict[str, Figures] = {}
    try:
        with tidemill.connect(folder / "lake") as lake:
            ours = Ours(lake, rows, given.fragments)
            ours.warm_up([name for name in WARMING if name in given.cases])
            for name in given.cases:
                full, changed = ours.measure(name, CASES[name], given.repeats)
                found[name] = Figures(full, changed)
                if CASES[name].has_peer:
                    peer = LanceDbViews(folder / "lancedb", rows, given.fragments)
                    found[name] = Figures(full, changed, *peer.measure(given.repeats))
        show(Console(width=150), found, given.rows)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
