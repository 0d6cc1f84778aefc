"""Compares warm backfills with raw pylance running the same functions, and measures the memory of tasks."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

import tidemill

DIMENSIONS: Final = 384
VECTOR: Final = pa.list_(pa.float32(), DIMENSIONS)
# The raw and our copy of the vectors, plus checkpoints and headroom.
VECTOR_COPIES: Final = 3
WHERES: Final = {"1 % in one place": "id < {rows} / 100", "1 % all over": "id % 100 = 7"}
ISOLATIONS: Final = ("none", "trusted", "sandbox")
SAMPLE_SECONDS: Final = 0.02
TASK_MARKS: Final = ("tidemill.spark.daemon", "pyspark.daemon", "pyspark/daemon")
GENEVA_ROWS: Final = 100_000
INTEROP: Final = Path(__file__).resolve().parents[1]


@tidemill.udf(output=pa.float64())
def arrow(x: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(x, 2.0), 1.0)


@tidemill.udf
def scalar(x: float) -> float:
    return x * 2.0 + 1.0


@tidemill.udf(output=VECTOR)
def vector(x: pa.Array) -> pa.Array:
    values = x.to_numpy().astype(np.float32)[:, np.newaxis] + np.arange(DIMENSIONS, dtype=np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), DIMENSIONS)


@tidemill.udf
def costly(x: float) -> float:
    """Takes about 20 microseconds of Python."""
    total = x
    for step in range(500):
        total += step
    return total


@dataclass(frozen=True)
class Case:
    """A function, and whether it also fills parts of the column."""

    function: Any
    is_by_row: bool = False
    has_wheres: bool = False
    has_nothing: bool = False

    @property
    def value_type(self) -> pa.DataType:
        return self.function.output.field(0).type

    def compute(self, x: pa.Array) -> pa.Array:
        if not self.is_by_row:
            made: pa.Array = self.function(x)
            return made
        call = self.function.__wrapped__
        return pa.array([call(value) for value in x.to_pylist()], self.value_type)


CASES: Final = {
    "arrow": Case(arrow, has_wheres=True, has_nothing=True),
    "scalar": Case(scalar, is_by_row=True),
    "vector": Case(vector),
    "costly": Case(costly, is_by_row=True, has_wheres=True),
}


@dataclass
class Measured:
    """The seconds of each repeat, and the peak memory of any task."""

    seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


class TaskMemory:
    """Watches the Python processes in which Spark runs tasks, and their children that call functions."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> TaskMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.is_set():
            self.peak_bytes = max([self.peak_bytes, *task_sizes()])
            self._is_over.wait(SAMPLE_SECONDS)


def task_sizes() -> Iterator[int]:
    """Resident bytes of each task: a fork of Spark's daemon and everything below it."""
    parents = {int(path.name): _parent(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    ours = _below(os.getpid(), parents)
    daemons = {process for process in ours if any(mark in _command(process) for mark in TASK_MARKS)}
    for process in daemons:
        if parents[process] in daemons:
            yield sum(_resident(member) for member in _below(process, parents))


def _below(ancestor: int, parents: dict[int, int]) -> set[int]:
    family = {ancestor}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _parent(folder: Path) -> int:
    after_name = _read(folder / "stat").rpartition(")")[2].split()
    return int(after_name[1]) if after_name else 0


def _command(process: int) -> str:
    return _read(Path(f"/proc/{process}/cmdline")).replace("\0", " ")


def _resident(process: int) -> int:
    pages = _read(Path(f"/proc/{process}/statm")).split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if pages else 0


def _read(path: Path) -> str:
    """Tolerates processes that end while they are inspected."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True)
class Bench:
    """The working folder. Every repeat has its own tables, which are removed afterwards."""

    lake: tidemill.Lake
    folder: Path
    parts: Sequence[pa.Table]

    @property
    def rows(self) -> int:
        return sum(part.num_rows for part in self.parts)

    @contextmanager
    def raw(self) -> Iterator[lance.LanceDataset]:
        path = self.folder / "raw.lance"
        lance.write_dataset(self.parts[0], str(path), enable_stable_row_ids=True)
        for part in self.parts[1:]:
            lance.write_dataset(part, str(path), mode="append")
        try:
            yield lance.dataset(str(path))
        finally:
            shutil.rmtree(path)

    @contextmanager
    def table(self) -> Iterator[tidemill.Table]:
        table = self.lake.create_table("bench.numbers", self.parts[0])
        try:
            for part in self.parts[1:]:
                table.add(part)
            yield table
        finally:
            self.lake.drop_table("bench.numbers")


def parts_of(rows: int, fragments: int) -> list[pa.Table]:
    generator = np.random.default_rng(7)
    ends = np.linspace(0, rows, fragments + 1, dtype=np.int64)
    return [
        pa.table({"id": np.arange(start, end), "x": generator.random(int(end - start))})
        for start, end in pairwise(ends)
    ]


def timed(work: Callable[[], object], into: Measured) -> None:
    with TaskMemory() as memory:
        began = time.perf_counter()
        work()
        into.seconds.append(time.perf_counter() - began)
    into.peak_bytes = max(into.peak_bytes, memory.peak_bytes)


def raw_column(dataset: lance.LanceDataset, case: Case) -> None:
    schema = pa.schema([pa.field("y", case.value_type)])

    @lance.batch_udf(output_schema=schema)
    def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([case.compute(batch["x"])], schema=schema)

    dataset.add_columns(compute, read_columns=["x"])


def measure(bench: Bench, case: Case, repeats: int) -> dict[str, Measured]:
    # The first round is a warm-up.
    measure_once(bench, case, {})
    found: dict[str, Measured] = {}
    for _ in range(repeats):
        measure_once(bench, case, found)
    return found


def measure_once(bench: Bench, case: Case, found: dict[str, Measured]) -> None:
    def note(name: str, work: Callable[[], object]) -> None:
        timed(work, found.setdefault(name, Measured()))

    with bench.raw() as raw, bench.table() as table:
        note("raw", partial(raw_column, raw, case))
        table.add_column("y", case.function)
        note("whole", partial(fill, table))
        for name, where in WHERES.items() if case.has_wheres else ():
            note(name, partial(fill, table, where=where.format(rows=bench.rows)))
        if case.has_nothing:
            note("nothing to do", partial(fill, table))
        check_same(raw, table)


def fill(table: tidemill.Table, **options: Any) -> None:
    table.backfill("y", **options).wait()


def check_same(raw: lance.LanceDataset, table: tidemill.Table) -> None:
    if not np.isclose(total(raw), total(table.to_lance()), rtol=1e-9, atol=0):
        raise SystemExit("the two columns differ")


def total(dataset: lance.LanceDataset) -> float:
    """A checksum weighted by row: it detects misplaced values without a second copy of the vectors."""
    found = 0.0
    for batch in dataset.to_batches(columns=["id", "y"]):
        column = batch["y"]
        values = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
        by_row = values.to_numpy().reshape(len(batch), -1).astype(np.float64).sum(axis=1)
        found += float(by_row @ (batch["id"].to_numpy() % 1009 + 1))
    return found


def report(console: Console, title: str, results: dict[str, dict[str, Measured]]) -> None:
    shown = Table(title=title)
    for heading in ("case", "", "median s", "fastest", "slowest", "against raw", "of the whole", "task MB"):
        shown.add_column(heading, justify="left" if heading in {"case", ""} else "right")
    for case, found in results.items():
        for name, measured in found.items():
            shown.add_row(case, name, *figures(name, measured, found))
    console.print(shown)


def figures(name: str, measured: Measured, found: dict[str, Measured]) -> list[str]:
    seconds = [f"{pick(measured.seconds):.3f}" for pick in (statistics.median, min, max)]
    ratio = f"{measured.median / found['raw'].median:.2f}x" if name == "whole" else ""
    is_part = name not in {"raw", "whole"}
    share = f"{measured.median / found['whole'].median:.1%}" if is_part else ""
    memory = f"{measured.peak_bytes / 1e6:.0f}" if name != "raw" and measured.peak_bytes else ""
    return [*seconds, ratio, share, memory]


def has_room(console: Console, folder: Path, rows: int) -> bool:
    needed, free = rows * DIMENSIONS * 4 * VECTOR_COPIES, shutil.disk_usage(folder).free
    if free < needed:
        console.print(f"vector: left out, needs {needed / 1e9:.0f} GB of disk and {free / 1e9:.0f} are free")
    return free >= needed


GENEVA: Final = """
import json, sys, time
import geneva, pyarrow as pa, pyarrow.compute as pc, numpy as np

rows, repeats, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

@geneva.udf(data_type=pa.float64())
def arrow(x: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(x, 2.0), 1.0)

@geneva.udf(data_type=pa.float64())
def scalar(x: float) -> float:
    return x * 2.0 + 1.0

db = geneva.connect(folder)
table = db.create_table("numbers", pa.table({"x": np.random.default_rng(7).random(rows)}))
found = {"arrow": [], "scalar": []}
with db.local_ray_context():
    for number in range(repeats + 1):
        for name, function in {"arrow": arrow, "scalar": scalar}.items():
            column = f"{name}_{number}"
            table.add_columns({column: function})
            began = time.perf_counter()
            table.backfill(column)
            found[name].append(time.perf_counter() - began)
print("FOUND " + json.dumps({name: seconds[1:] for name, seconds in found.items()}))
"""


def compare_geneva(console: Console, folder: Path, repeats: int) -> None:
    """Runs the published Geneva release, in the environment that the interoperability tests create."""
    sys.path.insert(0, str(INTEROP))
    from tests.interop.geneva.run import prepared

    try:
        python = prepared()
    except (subprocess.CalledProcessError, OSError) as error:
        console.print(f"Geneva: left out, it cannot be installed here ({error})")
        return
    command = [str(python), "-c", GENEVA, str(GENEVA_ROWS), str(repeats), str(folder / "geneva")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    answers = [line for line in ended.stdout.splitlines() if line.startswith("FOUND ")]
    if not answers:
        console.print(f"Geneva: left out, it did not run here:\n{ended.stderr[-2000:]}")
        return
    for name, seconds in json.loads(answers[-1].removeprefix("FOUND ")).items():
        console.print(
            f"Geneva on local Ray, {GENEVA_ROWS:,} rows, {name}: {statistics.median(seconds):.3f} s"
        )


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--fragments", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--isolation", choices=ISOLATIONS, default="none", help="where functions run")
    parser.add_argument("--folder", type=Path, help="folder of the tables; default is a temporary one")
    parser.add_argument("--geneva", action="store_true", help="also run Geneva on local Ray")
    return parser.parse_args()


def main() -> None:
    asked, console = options(), Console(width=120)
    os.environ["TIDEMILL_FUNCTION_ISOLATION"] = asked.isolation
    title = f"{asked.rows:,} rows, {asked.fragments} fragments, {asked.repeats} repeats, "
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-", dir=asked.folder) as name:
        folder = Path(name)
        cases = [case for case in asked.cases if case != "vector" or has_room(console, folder, asked.rows)]
        with tidemill.connect(folder / "lake") as lake:
            lake.create_namespace("bench")
            bench = Bench(lake, folder, parts_of(asked.rows, asked.fragments))
            results = {case: measure(bench, CASES[case], asked.repeats) for case in cases}
        report(console, f"{title}isolation {asked.isolation}", results)
        if asked.geneva:
            compare_geneva(console, folder, asked.repeats)


if __name__ == "__main__":
    main()
