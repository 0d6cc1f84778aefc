"""Warm backfill of a cheap Arrow function against raw pylance with the same function, in the same run."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

import tidemill


@tidemill.udf(output=pa.float64())
def scaled(x: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(x, 2.0), 1.0)


def batches(rows: int, fragments: int) -> list[pa.Table]:
    generator = np.random.default_rng(7)
    size = rows // fragments
    return [
        pa.table({"id": np.arange(n * size, (n + 1) * size), "x": generator.random(size)})
        for n in range(fragments)
    ]


def raw_seconds(dataset: lance.LanceDataset, column: str) -> float:
    schema = pa.schema([pa.field(column, pa.float64())])

    @lance.batch_udf(output_schema=schema)
    def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([scaled(batch["x"])], schema=schema)

    began = time.perf_counter()
    dataset.add_columns(compute, read_columns=["x"])
    return time.perf_counter() - began


def backfill_seconds(table: tidemill.Table, column: str) -> float:
    table.add_column(column, scaled)
    return again_seconds(table, column)


def again_seconds(table: tidemill.Table, column: str) -> float:
    began = time.perf_counter()
    table.backfill(column).wait()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--fragments", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
        data = batches(options.rows, options.fragments)
        raw = lance.write_dataset(
            pa.concat_tables(data),
            str(Path(folder) / "raw.lance"),
            max_rows_per_file=options.rows // options.fragments,
            enable_stable_row_ids=True,
        )
        with tidemill.connect(Path(folder) / "lake") as lake:
            lake.create_namespace("bench")
            table = lake.create_table("bench.numbers", data[0])
            for part in data[1:]:
                table.add(part)
            backfill_seconds(table, "warm_up")
            backfill_seconds(table, "warm_up_again")
            raw_seconds(raw, "warm_up")
            ours, theirs = [], []
            for number in range(options.repeats):
                theirs.append(raw_seconds(raw, f"c{number}"))
                ours.append(backfill_seconds(table, f"c{number}"))
            nothing = [again_seconds(table, "c0") for _ in range(options.repeats)]
            expected = raw.to_table(columns=["c0"])["c0"]
            found = table.to_lance().to_table(columns=["c0"])["c0"]
            if not found.equals(expected):
                raise SystemExit("the two columns differ")
    report = Table(title=f"{options.rows:,} rows, {options.fragments} fragments, {options.repeats} repeats")
    for heading in ("", "median s", "fastest s", "slowest s"):
        report.add_column(heading)
    measured = {
        "raw LanceDataset.add_columns": theirs,
        "tidemill backfill, warm": ours,
        "tidemill backfill, nothing to do": nothing,
    }
    for name, times in measured.items():
        report.add_row(name, *(f"{f(times):.3f}" for f in (statistics.median, min, max)))
    console.print(report)
    console.print(f"ratio of medians: {statistics.median(ours) / statistics.median(theirs):.2f}x")


if __name__ == "__main__":
    main()
