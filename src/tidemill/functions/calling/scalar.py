"""Functions called row by row, with Python values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from tidemill.catalog.model.functions import VALUE_FIELD
from tidemill.functions.calling.batches import BoundFunction, Part, Rows, value_batch
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
