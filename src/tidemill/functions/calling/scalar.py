"""Functions called row by row, with the values of the row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any, Final, Protocol

import pyarrow as pa

from tidemill.catalog.model.functions import VALUE_FIELD
from tidemill.functions.calling.batches import Definition, Part, Rows
from tidemill.functions.calling.limits import ROWS, START, Marks, limited
from tidemill.functions.calling.retries import Attempt
from tidemill.functions.encodings import OpenFunction
from tidemill.functions.failures import RAISED, FailedRows, Raised, described

# What a child has computed for longer than this is handed on, so that a crash cannot take it along.
FLUSH_SECONDS: Final = 0.1


class Collector(Protocol):
    """Gathers what calls with single rows return."""

    def add(self, result: Any) -> None: ...

    def add_nothing(self) -> None: ...

    def take(self, failures: list[FailedRows]) -> Part:
        """Everything since the last time; results that do not fit their type are failures too."""


class OneByOne:
    """Calls a function row by row."""

    def __init__(self, call: Callable[..., Any], collector: Collector, marks: Marks) -> None:
        self._call = call
        self._collector = collector
        self._marks = marks

    def sweep(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        values = enumerate(rows.values())
        is_over = False
        while not is_over:
            failures, is_over = self._until_flush(values, attempt)
            part = self._collector.take(failures)
            if part.rows:
                yield part
            is_over = is_over or attempt.is_ended_by(part)

    def _until_flush(
        self, values: Iterator[tuple[int, tuple[Any, ...]]], attempt: Attempt
    ) -> tuple[list[FailedRows], bool]:
        """Also ends when there are no more rows, or need not be."""
        call, collector, slots = self._call, self._collector, self._marks.slots
        failures: list[FailedRows] = []
        flush_at, first, is_over = monotonic() + FLUSH_SECONDS, None, True
        for position, row in values:
            slots[START], slots[ROWS] = position, 1
            first = position if first is None else first
            try:
                collector.add(call(*row))
            except RAISED as error:
                collector.add_nothing()
                failures.append(FailedRows(position - first, 1, described(error)))
            if monotonic() >= flush_at or (failures and attempt.stops(failures[-1].raised)):
                is_over = False
                break
        self._marks.end()
        return failures, is_over


class ScalarCalls:
    """Calls an open function with the values of one row after the other."""

    def __init__(self, definition: Definition, function: OpenFunction, marks: Marks) -> None:
        self._type = definition.output.field(VALUE_FIELD).type
        self._call = limited(function.call, definition.function.timeout_seconds)
        self._marks = marks

    def sweep(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        return OneByOne(self._call, _Values(self._type), self._marks).sweep(rows, attempt)


def as_values(values: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([values], names=[VALUE_FIELD])


class _Values:
    """Collects one value per row."""

    def __init__(self, value_type: pa.DataType) -> None:
        self._type = value_type
        self._values: list[Any] = []
        self.add = self._values.append

    def add_nothing(self) -> None:
        self._values.append(None)

    def take(self, failures: list[FailedRows]) -> Part:
        array, misfits = fitted(self._values, self._type)
        rows = len(self._values)
        self._values.clear()
        unfit = [FailedRows(place, 1, raised) for place, raised in misfits]
        found = sorted([*failures, *unfit], key=lambda failed: failed.start)
        return Part(rows, as_values(array), tuple(found))


def fitted(values: Sequence[Any], value_type: pa.DataType) -> tuple[pa.Array, list[tuple[int, Raised]]]:
    """Converts at once; only if that fails, one by one, and what does not fit is left null."""
    try:
        return _array(values, value_type), []
    except RAISED:
        return _one_by_one(values, value_type)


def _one_by_one(values: Sequence[Any], value_type: pa.DataType) -> tuple[pa.Array, list[tuple[int, Raised]]]:
    arrays = [pa.nulls(0, value_type)]
    misfits: list[tuple[int, Raised]] = []
    for place, value in enumerate(values):
        try:
            arrays.append(_array([value], value_type))
        except RAISED as error:
            arrays.append(pa.nulls(1, value_type))
            misfits.append((place, described(error)))
    return pa.concat_arrays(arrays), misfits


def _array(values: Sequence[Any], value_type: pa.DataType) -> pa.Array:
    """Strings of more than two gigabytes in all come in chunks; then they are too many for one call."""
    array = pa.array(values, type=value_type)
    return array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
