"""Functions called with whole batches; a batch that fails is bisected down to the rows at fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from tidemill.catalog.model.functions import VALUE_FIELD, FunctionKind
from tidemill.functions.calling.batches import BoundFunction, NoValues, Part, Rows, failed_part, value_batch
from tidemill.functions.calling.limits import CallProgress, with_timeout
from tidemill.functions.calling.retries import Attempt
from tidemill.functions.encodings import OpenFunction
from tidemill.functions.failures import FUNCTION_ERRORS, FailedRows, describe


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
