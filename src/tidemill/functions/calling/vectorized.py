"""Functions called with whole batches; one that fails is taken apart, down to the row at fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from tidemill.catalog.model.functions import VALUE_FIELD, FunctionKind
from tidemill.functions.calling.batches import Definition, NoValues, Part, Rows, failed_part
from tidemill.functions.calling.limits import Marks, limited
from tidemill.functions.calling.retries import Attempt
from tidemill.functions.calling.scalar import as_values
from tidemill.functions.encodings import OpenFunction
from tidemill.functions.failures import RAISED, FailedRows, described


class VectorizedCalls:
    """Calls an open function with arrays, or with a batch if it takes one."""

    def __init__(self, definition: Definition, function: OpenFunction, marks: Marks) -> None:
        self._name = definition.function.name
        self._names = list(definition.names)
        self._type = definition.output.field(VALUE_FIELD).type
        self._is_batch = function.kind is FunctionKind.BATCH
        self._call = limited(function.call, definition.function.timeout_seconds)
        self._marks = marks

    def sweep(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        return Together(self._at_once, self._nulls, self._marks).sweep(rows, attempt)

    def _at_once(self, rows: Rows) -> pa.RecordBatch:
        """A batch function knows its columns by the names it declared, whatever they are bound to."""
        inputs = rows.inputs
        given = [inputs.rename_columns(self._names)] if self._is_batch else inputs.columns
        return as_values(_checked(self._name, self._call(*given), len(rows), self._type))

    def _nulls(self, rows: int) -> pa.RecordBatch:
        return as_values(pa.nulls(rows, self._type))


class Together:
    """Calls a function with all rows at once; when that fails, with halves, down to the row at fault."""

    def __init__(self, call: Callable[[Rows], pa.RecordBatch], no_values: NoValues, marks: Marks) -> None:
        self._call = call
        self._no_values = no_values
        self._marks = marks

    def sweep(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        spans = _spans(len(rows), attempt)
        while spans:
            start, count = spans.pop()
            part = self._tried(rows, start, count, attempt)
            if part is None:
                half = count // 2
                spans += [(start + half, count - half), (start, half)]
                continue
            yield part
            if attempt.is_ended_by(part):
                return

    def _tried(self, rows: Rows, start: int, count: int, attempt: Attempt) -> Part | None:
        self._marks.begin(start, count)
        try:
            return Part(count, self._call(rows.slice(start, count)))
        except RAISED as error:
            raised = described(error)
        finally:
            self._marks.end()
        is_taken_apart = count > 1 and not attempt.keeps_together(raised)
        return None if is_taken_apart else failed_part(FailedRows(0, count, raised), self._no_values)


def _spans(rows: int, attempt: Attempt) -> list[tuple[int, int]]:
    """The first is the last in the list."""
    if attempt.is_by_row:
        return [(start, 1) for start in range(rows - 1, -1, -1)]
    return [(0, rows)] if rows else []


def _checked(name: str, result: Any, rows: int, value_type: pa.DataType) -> pa.Array:
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array):
        raise TypeError(f"{name} returned a {type(result).__name__}; a pyarrow Array is needed")
    if len(result) != rows:
        raise ValueError(f"{name} returned {len(result)} values for {rows} rows")
    # An array made from raw buffers may lie about them, and whoever reads it would crash.
    result.validate(full=True)
    return result if result.type.equals(value_type) else result.cast(value_type)
