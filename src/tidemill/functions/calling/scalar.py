"""Functions that make one value per row, called in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tidemill.catalog.model.functions import VALUE_FIELD, FunctionKind
from tidemill.functions.calling.attempts import Attempt
from tidemill.functions.calling.batches import Definition, Part, Rows
from tidemill.functions.calling.limits import Marks, limited
from tidemill.functions.calling.vectorized import OneByOne, Together
from tidemill.functions.encodings import OpenFunction
from tidemill.functions.failures import RAISED, FailedRows, Raised, described


class ValueCalls:
    """Calls an open function as its kind asks for."""

    def __init__(self, definition: Definition, function: OpenFunction, marks: Marks) -> None:
        self._name = definition.function.name
        self._names = list(definition.names)
        self._type = definition.output.field(VALUE_FIELD).type
        self._is_batch = function.kind is FunctionKind.BATCH
        self._is_scalar = function.kind is FunctionKind.SCALAR
        self._call = limited(function.call, definition.function.timeout_seconds)
        self._marks = marks

    def sweep(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        if self._is_scalar:
            return OneByOne(self._call, _Values(self._type), self._marks).sweep(rows, attempt)
        return Together(self._at_once, self._nulls, self._marks).sweep(rows, attempt)

    def _at_once(self, rows: Rows) -> pa.RecordBatch:
        """A batch function knows its columns by the names it declared, whatever they are bound to."""
        inputs = rows.inputs
        given = [inputs.rename_columns(self._names)] if self._is_batch else inputs.columns
        return as_values(_checked(self._name, self._call(*given), len(rows), self._type))

    def _nulls(self, rows: int) -> pa.RecordBatch:
        return as_values(pa.nulls(rows, self._type))


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
