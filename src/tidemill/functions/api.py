"""Column functions and chunkers, as the kernels in Spark's tasks call them.

A `ColumnFunction` or `ChunkFunction` is opened once per task and called with one batch after another. It
chooses where the function runs: in this process, or in child processes if the isolation settings, a
package or an environment variable require them. `RetryLoop` runs each batch on the chosen executors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import TracebackType
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.model.functions import Environment, value_output
from tidemill.functions.blobs import FileSource
from tidemill.functions.calling.batches import (
    BoundFunction,
    NoValues,
    Part,
    Positions,
    RowIds,
    Rows,
    value_batch,
)
from tidemill.functions.calling.chunks import chunk_schema, no_chunks
from tidemill.functions.calling.in_process import InProcessExecutor
from tidemill.functions.calling.retries import Attempt, AttemptResult, Executor, RetryLoop, RunResult
from tidemill.functions.environments import missing_packages, site_packages
from tidemill.functions.failures import FunctionRaised
from tidemill.functions.isolation.pool import FunctionHost, Isolation
from tidemill.functions.isolation.supervision import ChildExecutor
from tidemill.jobs.model.columns import FunctionCall
from tidemill.jobs.model.failures import ErrorPolicy, RowFailure

__all__ = [
    "CallSettings",
    "ChunkFunction",
    "Chunks",
    "ColumnFunction",
    "Computed",
    "FunctionRaised",
    "RowIds",
]

# What a function declares if it needs a network.
NETWORK: Final = "network"


@dataclass(frozen=True)
class CallSettings:
    """How a function is called.

    `host` says where it runs, `on_error` how often a row is tried, `threads` how many executors share a
    batch, `environment` which packages and variables the job adds.
    """

    host: FunctionHost
    on_error: ErrorPolicy = field(default_factory=ErrorPolicy)
    threads: int = 1
    environment: Environment = field(default_factory=Environment)


@dataclass(frozen=True)
class Computed:
    """One value per row; null where the row failed and was skipped."""

    values: pa.Array
    failures: tuple[RowFailure, ...] = ()


class ColumnFunction:
    """A function that computes one value per row. Leaving the `with` block releases its processes."""

    def __init__(
        self,
        call: FunctionCall,
        value_type: pa.DataType,
        settings: CallSettings,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._output = value_output(value_type)
        self._runner = _FunctionRunner(
            _bound(call, self._output), settings, lambda rows: value_batch(pa.nulls(rows, value_type)), sleep
        )

    def __enter__(self) -> ColumnFunction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.close()

    def compute(
        self,
        inputs: pa.RecordBatch,
        row_ids: RowIds,
        blobs: Mapping[int, Sequence[BinaryIO | None]] | None = None,
    ) -> Computed:
        """Raises FunctionRaised when a row fails and may not be skipped."""
        sources = {
            number: [None if file is None else FileSource(file) for file in files]
            for number, files in (blobs or {}).items()
        }
        result = self._runner.run(Rows(inputs, row_ids, sources))
        return Computed(self._values(result.attempts, len(row_ids)), result.failures)

    def _values(self, attempts: Sequence[AttemptResult], rows: int) -> pa.Array:
        """The last attempt at a row counts."""
        [values] = _columns(attempts, self._output)
        if len(attempts) == 1:
            return values
        order, start = np.empty(rows, dtype=np.int64), 0
        for attempt in attempts:
            order[attempt.positions] = np.arange(start, start + len(attempt.positions))
            start += len(attempt.positions)
        return values.take(pa.array(order))


@dataclass(frozen=True)
class Chunks:
    """The rows that a chunker yielded.

    For each there is the position of its parent in the batch, and its index among the chunks of that parent.
    """

    parents: Positions
    indexes: npt.NDArray[np.int32]
    columns: Sequence[pa.Array]
    failures: tuple[RowFailure, ...] = ()


class ChunkFunction:
    """A function that yields any number of rows per row. Leaving the `with` block releases its processes."""

    def __init__(
        self, call: FunctionCall, settings: CallSettings, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        output = call.function.output
        self._schema = chunk_schema(output)
        self._runner = _FunctionRunner(_bound(call, output), settings, lambda rows: no_chunks(output), sleep)

    def __enter__(self) -> ChunkFunction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.close()

    def compute(self, inputs: pa.RecordBatch, row_ids: RowIds) -> Chunks:
        """Raises FunctionRaised when a row fails and may not be skipped."""
        result = self._runner.run(Rows(inputs, row_ids))
        _, indexes, *columns = _columns(result.attempts, self._schema)
        parents = np.concatenate([np.empty(0, np.int64), *map(_parents, result.attempts)])
        if len(result.attempts) == 1:
            return Chunks(parents, indexes.to_numpy(), columns, result.failures)
        order = np.argsort(parents, kind="stable")
        taken = [column.take(pa.array(order)) for column in columns]
        return Chunks(parents[order], indexes.to_numpy()[order], taken, result.failures)


class _FunctionRunner:
    """Starts the executors of a function when the first rows come, and runs batches on them with retries."""

    def __init__(
        self,
        bound: BoundFunction,
        settings: CallSettings,
        no_values: NoValues,
        sleep: Callable[[float], None],
    ) -> None:
        self._bound = bound
        self._settings = settings
        self._no_values = no_values
        self._sleep = sleep
        self._loop: RetryLoop | None = None
        self._resources = ExitStack()

    def run(self, rows: Rows) -> RunResult:
        if self._loop is None:
            self._loop = RetryLoop(self._start(), self._settings.on_error, self._sleep)
        return self._loop.run(rows)

    def close(self) -> None:
        self._resources.close()
        self._loop = None

    def _start(self) -> Executor:
        executors = [self._choose_executor() for _ in range(max(self._settings.threads, 1))]
        for executor in executors:
            self._resources.callback(executor.close)
        if len(executors) == 1:
            return executors[0]
        parallel = _ParallelExecutor(executors)
        self._resources.callback(parallel.close)
        return parallel

    def _choose_executor(self) -> ChildExecutor | InProcessExecutor:
        host, environment = self._settings.host, self._environment()
        is_expression = self._bound.function.is_expression
        if is_expression or (host.isolation is Isolation.TASK and environment.is_empty):
            return InProcessExecutor(self._bound)
        packages = site_packages(environment, host.environments_root, builds=host.builds_packages)
        network = self._bound.function.declared.get(NETWORK) is True
        spec = host.zygote_spec(packages, environment.variables, network=network)
        return ChildExecutor(self._bound, spec, host.memory_bytes, self._no_values, host.call_seconds)

    def _environment(self) -> Environment:
        """Packages of the job replace those that the function requires."""
        environment = self._settings.environment
        if environment.packages:
            return environment
        return replace(environment, packages=missing_packages(self._bound.function.requirements))


class _ParallelExecutor:
    """Splits rows between several executors, each in its own thread."""

    def __init__(self, executors: Sequence[Executor]) -> None:
        self._executors = executors
        self._threads = ThreadPoolExecutor(len(executors), "function")

    def run(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        slices = _slices(rows, len(self._executors))
        if len(slices) < 2:
            yield from self._executors[0].run(rows, attempt)
            return
        executors = self._executors[: len(slices)]

        def run(executor: Executor, some: Rows) -> list[Part]:
            return list(executor.run(some, attempt))

        for parts in self._threads.map(run, executors, slices):
            yield from parts

    def close(self) -> None:
        self._threads.shutdown()


def _bound(call: FunctionCall, output: pa.Schema) -> BoundFunction:
    return BoundFunction(call.function, tuple(call.function.parameters or call.inputs), output)


def _slices(rows: Rows, count: int) -> list[Rows]:
    ends = np.linspace(0, len(rows), min(count, len(rows)) + 1, dtype=np.int64)
    return [rows.slice(int(start), int(end - start)) for start, end in pairwise(ends)]


def _columns(attempts: Sequence[AttemptResult], schema: pa.Schema) -> list[pa.Array]:
    """The columns of all parts, concatenated, in the types of the schema."""
    batches = [part.values for attempt in attempts for part in attempt.parts]
    if len(batches) == 1:
        return [_cast(batches[0].column(number), field.type) for number, field in enumerate(schema)]
    return [
        pa.concat_arrays(
            [pa.nulls(0, field.type), *(_cast(batch.column(number), field.type) for batch in batches)]
        )
        for number, field in enumerate(schema)
    ]


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A child that does not know an extension type of the task returns its storage type."""
    return array if array.type.equals(wanted) else array.cast(wanted)


def _parents(attempt: AttemptResult) -> Positions:
    """Positions in the whole batch; each part numbers its parents from its own first row."""
    starts = np.cumsum([0, *(part.rows for part in attempt.parts)])
    positions = [
        part.values.column(0).to_numpy() + start for part, start in zip(attempt.parts, starts, strict=False)
    ]
    found: Positions = attempt.positions[np.concatenate([np.empty(0, np.int64), *positions])]
    return found
