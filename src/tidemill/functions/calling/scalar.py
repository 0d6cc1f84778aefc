"""Functions that make one value per row, called row by row with Python values or with whole batches.

A batch that fails is bisected down to the rows at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from tidemill.catalog.model.functions import VALUE_FIELD, FunctionKind
from tidemill.functions.calling.batches import BoundFunction, NoValues, Part, Rows, failed_part, value_batch
from tidemill.functions.calling.limits import ROWS, START, CallProgress, with_timeout
from tidemill.functions.calling.retries import Attempt
from tidemill.functions.encodings import OpenFunction
from tidemill.functions.failures import FUNCTION_ERRORS, FailedRows, Raised, describe

# Results are passed on at this interval, so that a crash loses little of them.
FLUSH_SECONDS: Final = 0.1
# An array, and what was raised for the values at some positions.
Converted: TypeAlias = tuple[pa.Array, list[tuple[int, Raised]]]


class Collector(Protocol):
    """Collects the results of calls with single rows."""

    def add(self, result: Any) -> None: ...

    def add_failed(self) -> None: ...

    def take(self, failures: list[FailedRows]) -> Part:
        """Returns the results since the last time; one that does not fit its type is a failure too."""


class RowByRow:
    """The loop over rows, for scalar functions and chunkers."""

    def __init__(self, call: Callable[..., Any], collector: Collector, progress: CallProgress) -> None:
        self._call = call
        self._collector = collector
        self._progress = progress

    def run(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        values = enumerate(rows.values())
        is_over = False
        while not is_over:
            failures, is_over = self._until_flush(values, attempt)
            part = self._collector.take(failures)
            if part.rows:
                yield part
            is_over = is_over or attempt.is_stopped_by(part)

    def _until_flush(
        self, values: Iterator[tuple[int, tuple[Any, ...]]], attempt: Attempt
    ) -> tuple[list[FailedRows], bool]:
        """Calls until the next flush. Returns the failures, and whether all rows are done."""
        call, collector, slots = self._call, self._collector, self._progress.slots
        failures: list[FailedRows] = []
        flush_at, first, is_over = monotonic() + FLUSH_SECONDS, None, True
        for position, row in values:
            slots[START], slots[ROWS] = position, 1
            first = position if first is None else first
            try:
                collector.add(call(*row))
            except FUNCTION_ERRORS as error:
                collector.add_failed()
                failures.append(FailedRows(position - first, 1, describe(error)))
            if monotonic() >= flush_at or (failures and attempt.is_fatal(failures[-1].raised)):
                is_over = False
                break
        self._progress.end()
        return failures, is_over


class ScalarCalls:
    """Calls an open scalar function."""

    def __init__(self, bound: BoundFunction, function: OpenFunction, progress: CallProgress) -> None:
        self._type = bound.output.field(VALUE_FIELD).type
        self._call = with_timeout(function.call, bound.function.timeout_seconds)
        self._progress = progress

    def run(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        return RowByRow(self._call, _ValueCollector(self._type), self._progress).run(rows, attempt)


class _ValueCollector:
    """Collects one value per row; null for one that failed."""

    def __init__(self, value_type: pa.DataType) -> None:
        self._type = value_type
        self._values: list[Any] = []
        self.add = self._values.append

    def add_failed(self) -> None:
        self._values.append(None)

    def take(self, failures: list[FailedRows]) -> Part:
        array, errors = to_array(self._values, self._type)
        rows = len(self._values)
        self._values.clear()
        unconvertible = [FailedRows(position, 1, raised) for position, raised in errors]
        found = sorted([*failures, *unconvertible], key=lambda failed: failed.start)
        return Part(rows, value_batch(array), tuple(found))


def to_array(values: Sequence[Any], value_type: pa.DataType) -> Converted:
    """Converts all values at once; if that fails, each alone, with null for those that raise."""
    try:
        return _array(values, value_type), []
    except FUNCTION_ERRORS:
        return _convert_each(values, value_type)


def _convert_each(values: Sequence[Any], value_type: pa.DataType) -> Converted:
    arrays = [pa.nulls(0, value_type)]
    errors: list[tuple[int, Raised]] = []
    for position, value in enumerate(values):
        try:
            arrays.append(_array([value], value_type))
        except FUNCTION_ERRORS as error:
            arrays.append(pa.nulls(1, value_type))
            errors.append((position, describe(error)))
    return pa.concat_arrays(arrays), errors


def _array(values: Sequence[Any], value_type: pa.DataType) -> pa.Array:
    """Strings of more than 2 GB in total come in several chunks, and concatenating those raises."""
    array = pa.array(values, type=value_type)
    return array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)


class VectorizedCalls:
    """Calls an open function with Arrow arrays, or with a record batch."""

    def __init__(self, bound: BoundFunction, function: OpenFunction, progress: CallProgress) -> None:
        self._name = bound.function.name
        self._names = list(bound.names)
        self._type = bound.output.field(VALUE_FIELD).type
        self._is_batch = function.kind is FunctionKind.BATCH
        self._call = with_timeout(function.call, bound.function.timeout_seconds)
        self._progress = progress

    def run(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        return Bisection(self._call_batch, self._nulls, self._progress).run(rows, attempt)

    def _call_batch(self, rows: Rows) -> pa.RecordBatch:
        """A batch function sees its columns under the names of its parameters, not those of the table."""
        inputs = rows.inputs
        given = [inputs.rename_columns(self._names)] if self._is_batch else inputs.columns
        return value_batch(_checked(self._name, self._call(*given), len(rows), self._type))

    def _nulls(self, rows: int) -> pa.RecordBatch:
        return value_batch(pa.nulls(rows, self._type))


class Bisection:
    """Calls a function with all rows; when that fails, with each half, down to single rows."""

    def __init__(
        self, call: Callable[[Rows], pa.RecordBatch], no_values: NoValues, progress: CallProgress
    ) -> None:
        self._call = call
        self._no_values = no_values
        self._progress = progress

    def run(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        spans = _spans(len(rows), attempt)
        while spans:
            start, count = spans.pop()
            part = self._try(rows, start, count, attempt)
            if part is None:
                half = count // 2
                spans += [(start + half, count - half), (start, half)]
                continue
            yield part
            if attempt.is_stopped_by(part):
                return

    def _try(self, rows: Rows, start: int, count: int, attempt: Attempt) -> Part | None:
        self._progress.begin(start, count)
        try:
            return Part(count, self._call(rows.slice(start, count)))
        except FUNCTION_ERRORS as error:
            raised = describe(error)
        finally:
            self._progress.end()
        is_bisected = count > 1 and not attempt.retries_whole_batch(raised)
        return None if is_bisected else failed_part(FailedRows(0, count, raised), self._no_values)


def _spans(rows: int, attempt: Attempt) -> list[tuple[int, int]]:
    """Start and count of each call, in reverse: they are popped from the end."""
    if attempt.is_row_by_row:
        return [(start, 1) for start in range(rows - 1, -1, -1)]
    return [(0, rows)] if rows else []


def _checked(name: str, result: Any, rows: int, value_type: pa.DataType) -> pa.Array:
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array):
        raise TypeError(f"{name} returned a {type(result).__name__}; a pyarrow Array is needed")
    if len(result) != rows:
        raise ValueError(f"{name} returned {len(result)} values for {rows} rows")
    # An array made from raw buffers may be invalid, and would crash the process that reads it.
    result.validate(full=True)
    return result if result.type.equals(value_type) else result.cast(value_type)
