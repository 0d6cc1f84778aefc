"""Two ways to run a numbered set of tasks on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession

Task: TypeAlias = Callable[[int], bytes]
"""Processes the share with a given number in a Python worker and returns bytes."""

FanOut: TypeAlias = Callable[[SparkSession, Task, int], list[bytes]]


def through_rdd(session: SparkSession, task: Task, tasks: int) -> list[bytes]:
    """The fast way: no query planning, and about 3 ms per task. Needs a classic session."""
    return list(session.sparkContext.parallelize(range(tasks), tasks).map(task).collect())


def through_arrow(session: SparkSession, task: Task, tasks: int) -> list[bytes]:
    """Also works on Spark Connect; about 0.15 s slower overall, and 40 ms per task."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            answers = [task(number) for number in batch.column(0).to_pylist()]
            yield pa.record_batch([pa.array(answers, pa.binary())], names=["answer"])

    rows = session.range(0, tasks, 1, tasks).mapInArrow(run, "answer binary").collect()
    return [bytes(row.answer) for row in rows]
