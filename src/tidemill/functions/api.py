"""What Spark's kernels call: column functions and chunkers, wherever they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import TracebackType
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.model.environments import Environment
from tidemill.catalog.model.functions import FunctionEncoding, value_output
from tidemill.functions.blobs import FileSource
from tidemill.functions.calling.batches import Definition, NoValues, Part, Positions, RowIds, Rows
from tidemill.functions.calling.chunks import no_children, placed_schema
from tidemill.functions.calling.in_process import InsideSweeper
from tidemill.functions.calling.retries import Attempt, Round, Rounds, Runner, Sweeper, combined
from tidemill.functions.calling.scalar import as_values
from tidemill.functions.environments import missing_packages, site_packages
from tidemill.functions.failures import FunctionRaised
from tidemill.functions.isolation.settings import FunctionHost, Isolation
from tidemill.functions.isolation.supervision import ChildSweeper
from tidemill.functions.isolation.zygote_client import Setup
from tidemill.jobs.model.failures import ErrorPolicy, RowFailure
from tidemill.jobs.model.stages import FunctionCall

__all__ = [
    "CallSettings",
    "Children",
    "ChunkFunction",
    "ColumnFunction",
    "Computed",
    "FunctionRaised",
    "RowIds",
]


@dataclass(frozen=True)
class CallSettings:
    """How a function is called: where, with which packages, how often, and from how many places at once."""

    host: FunctionHost
    on_error: ErrorPolicy = field(default_factory=ErrorPolicy)
    threads: int = 1
    environment: Environment = field(default_factory=Environment)


@dataclass(frozen=True)
class Computed:
    """The values of some rows: null at those that failed and were skipped."""

    values: pa.Array
    failures: tuple[RowFailure, ...] = ()


class ColumnFunction:
    """A function to be called with batch after batch; the end of the block gives back what that took."""

    def __init__(
        self,
        call: FunctionCall,
        value_type: pa.DataType,
        settings: CallSettings,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        names = tuple(call.function.parameters or call.inputs)
        self._output = value_output(value_type)
        definition = Definition(call.function, names, self._output)
        self._place = Place(definition, settings, lambda rows: as_values(pa.nulls(rows, value_type)), sleep)

    def __enter__(self) -> ColumnFunction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._place.close()

    def compute(
        self,
        inputs: pa.RecordBatch,
        row_ids: RowIds,
        blobs: Mapping[int, Sequence[BinaryIO | None]] | None = None,
    ) -> Computed:
        """The values of these rows; raises FunctionRaised when a row fails and may not be skipped."""
        sources = {
            number: [None if file is None else FileSource(file) for file in files]
            for number, files in (blobs or {}).items()
        }
        done = self._place.run(Rows(inputs, row_ids, sources))
        return Computed(self._values(done.rounds, len(row_ids)), done.failures)

    def _values(self, rounds: Sequence[Round], rows: int) -> pa.Array:
        """What a row got last is what counts."""
        [values] = combined([part.values for each in rounds for part in each.parts], self._output)
        if len(rounds) == 1:
            return values
        order, start = np.empty(rows, dtype=np.int64), 0
        for each in rounds:
            order[each.positions] = np.arange(start, start + len(each.positions))
            start += len(each.positions)
        return values.take(pa.array(order))


@dataclass(frozen=True)
class Children:
    """Rows a chunker yielded: for each the position of its parent and its index there, and the columns."""

    parents: Positions
    indexes: npt.NDArray[np.int32]
    columns: Sequence[pa.Array]
    failures: tuple[RowFailure, ...] = ()


class ChunkFunction:
    """A chunker to be called with batch after batch; the end of the block gives back what that took."""

    def __init__(
        self, call: FunctionCall, settings: CallSettings, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        output = call.function.output
        names = tuple(call.function.parameters or call.inputs)
        self._schema = placed_schema(output)
        definition = Definition(call.function, names, output)
        self._place = Place(definition, settings, lambda rows: no_children(output), sleep)

    def __enter__(self) -> ChunkFunction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._place.close()

    def compute(self, inputs: pa.RecordBatch, row_ids: RowIds) -> Children:
        """Everything yielded for these rows; raises FunctionRaised with the row at fault."""
        done = self._place.run(Rows(inputs, row_ids))
        batches = [part.values for each in done.rounds for part in each.parts]
        _, indexes, *columns = combined(batches, self._schema)
        parents = np.concatenate([np.empty(0, np.int64), *(_parents(each) for each in done.rounds)])
        if len(done.rounds) == 1:
            return Children(parents, indexes.to_numpy(), columns, done.failures)
        order = np.argsort(parents, kind="stable")
        taken = [column.take(pa.array(order)) for column in columns]
        return Children(parents[order], indexes.to_numpy()[order], taken, done.failures)


def _parents(each: Round) -> Positions:
    """A part counts from its own first row."""
    starts = np.cumsum([0, *(part.rows for part in each.parts)])
    places = [
        part.values.column(0).to_numpy() + start for part, start in zip(each.parts, starts, strict=False)
    ]
    found: Positions = each.positions[np.concatenate([np.empty(0, np.int64), *places])]
    return found


class Place:
    """One or several processes that have a function open; they are made when rows come."""

    def __init__(
        self,
        definition: Definition,
        settings: CallSettings,
        no_values: NoValues,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._definition = definition
        self._settings = settings
        self._no_values = no_values
        self._sleep = sleep
        self._runner: Runner | None = None
        self._open = ExitStack()

    def run(self, rows: Rows) -> Rounds:
        if self._runner is None:
            self._runner = self._made()
        return self._runner.run(rows)

    def close(self) -> None:
        self._open.close()
        self._runner = None

    def _made(self) -> Runner:
        sweepers = [self._sweeper() for _ in range(max(self._settings.threads, 1))]
        for sweeper in sweepers:
            self._open.callback(sweeper.close)
        return Runner(self._shared(sweepers), self._settings.on_error, self._sleep)

    def _shared(self, sweepers: Sequence[Sweeper]) -> Sweeper:
        if len(sweepers) == 1:
            return sweepers[0]
        together = _Parallel(sweepers)
        self._open.callback(together.close)
        return together

    def _sweeper(self) -> ChildSweeper | InsideSweeper:
        host, environment = self._settings.host, self._environment()
        is_expression = self._definition.function.encoding is FunctionEncoding.SQL
        if is_expression or (host.isolation is Isolation.TASK and environment.is_empty):
            return InsideSweeper(self._definition)
        packages = site_packages(environment, host.environments_root)
        setup = Setup(host.command_prefix, packages, tuple(sorted(environment.variables.items())))
        return ChildSweeper(self._definition, setup, host.memory_bytes, self._no_values)

    def _environment(self) -> Environment:
        """What the job asks for goes before what the function asked for itself."""
        environment = self._settings.environment
        if environment.packages:
            return environment
        return replace(environment, packages=missing_packages(self._definition.function.requirements))


class _Parallel:
    """Shares rows out to several sweepers, each in a thread of its own."""

    def __init__(self, sweepers: Sequence[Sweeper]) -> None:
        self._sweepers = sweepers
        self._threads = ThreadPoolExecutor(len(sweepers), "function")

    def sweep(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        slices = _slices(rows, len(self._sweepers))
        if len(slices) < 2:
            yield from self._sweepers[0].sweep(rows, attempt)
            return
        sweepers = self._sweepers[: len(slices)]
        found = self._threads.map(lambda sweeper, some: list(sweeper.sweep(some, attempt)), sweepers, slices)
        for parts in found:
            yield from parts

    def close(self) -> None:
        self._threads.shutdown()


def _slices(rows: Rows, count: int) -> list[Rows]:
    ends = np.linspace(0, len(rows), min(count, len(rows)) + 1, dtype=np.int64)
    return [rows.slice(int(start), int(end - start)) for start, end in pairwise(ends)]
