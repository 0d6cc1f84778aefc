"""Functions at work in a Python worker: opened once, called with Arrow data, failures traced to the row."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import cloudpickle
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.model.functions import Function, FunctionKind

OPEN_FUNCTIONS: Final = 64
CONVERSION_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
# What a function may end with; one that calls sys.exit() is at fault like one that raises.
RAISED: Final = (Exception, SystemExit)
RowIds: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class RowFailure:
    """What a function raised, and on which row; on none if it could not even be opened."""

    row_id: int | None
    exception: str
    message: str
    traceback: str


class FunctionRaised(Exception):
    """Carries a RowFailure out of the kernel."""

    def __init__(self, failure: RowFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True)
class Children:
    """Rows a chunker yielded: for each the position of its parent and its index there, and the columns."""

    parents: npt.NDArray[np.int64]
    indexes: npt.NDArray[np.int32]
    columns: Sequence[pa.Array]


@lru_cache(maxsize=OPEN_FUNCTIONS)
def _open(digest: str, payload: bytes) -> Callable[..., Any]:
    """Unpickles a function, once per process, and lets a stateful one prepare itself."""
    function: Callable[..., Any] = cloudpickle.loads(payload)
    setup = getattr(function, "setup", None)
    if callable(setup):
        setup()
    return function


def _opened(function: Function) -> Callable[..., Any]:
    try:
        return _open(function.digest, function.payload)
    except RAISED as error:
        name = type(error).__qualname__
        message = f"{function.name} cannot be opened: {name}: {error}"
        raise FunctionRaised(RowFailure(None, name, message, _trace(error))) from error


class Column:
    """A function that makes one value per row."""

    def __init__(self, function: Function, value_type: pa.DataType) -> None:
        self._function = function
        self._type = value_type

    def compute(self, inputs: pa.RecordBatch, row_ids: RowIds) -> pa.Array:
        """The values of these rows; raises FunctionRaised with the row at fault."""
        call = _opened(self._function)
        if self._function.kind is FunctionKind.SCALAR:
            return self._row_by_row(call, inputs, row_ids)
        try:
            return self._at_once(call, inputs)
        except RAISED as error:
            if len(inputs) <= 1:
                raise FunctionRaised(_failure(error, row_ids[0])) from error
        half = len(inputs) // 2
        first = self.compute(inputs.slice(0, half), row_ids[:half])
        return pa.concat_arrays([first, self.compute(inputs.slice(half), row_ids[half:])])

    def _row_by_row(self, call: Callable[..., Any], inputs: pa.RecordBatch, row_ids: RowIds) -> pa.Array:
        values: list[Any] = []
        try:
            for row in _rows(inputs):
                values.append(call(*row))
        except RAISED as error:
            raise FunctionRaised(_failure(error, row_ids[len(values)])) from error
        return _to_arrow(values, self._type, row_ids)

    def _at_once(self, call: Callable[..., Any], inputs: pa.RecordBatch) -> pa.Array:
        is_batch = self._function.kind is FunctionKind.BATCH
        result = call(self._named(inputs)) if is_batch else call(*inputs.columns)
        return _checked(self._function.name, result, len(inputs), self._type)

    def _named(self, inputs: pa.RecordBatch) -> pa.RecordBatch:
        """A batch function knows its columns by the names it declared, whatever they are bound to."""
        return inputs.rename_columns(list(self._function.parameters))


class Chunks:
    """A function that yields any number of rows per row."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._output = function.output

    def compute(self, inputs: pa.RecordBatch, row_ids: RowIds) -> Children:
        """Everything yielded for these rows; raises FunctionRaised with the row at fault."""
        call = _opened(self._function)
        parents: list[int] = []
        indexes: list[int] = []
        columns: list[list[Any]] = [[] for _ in self._output]
        for position, row in enumerate(_rows(inputs)):
            try:
                for index, child in enumerate(call(*row)):
                    for column, value in zip(columns, _values(child, self._output), strict=True):
                        column.append(value)
                    parents.append(position)
                    indexes.append(index)
            except RAISED as error:
                raise FunctionRaised(_failure(error, row_ids[position])) from error
        positions = np.array(parents, dtype=np.int64)
        arrays = [
            _to_arrow(values, field.type, row_ids[positions])
            for values, field in zip(columns, self._output, strict=True)
        ]
        return Children(positions, np.array(indexes, dtype=np.int32), arrays)


def _rows(inputs: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in inputs.columns), strict=True)


def _to_arrow(values: Sequence[Any], value_type: pa.DataType, row_ids: RowIds) -> pa.Array:
    """Converts at once; only if that fails, one by one to find the row whose value does not fit."""
    try:
        return pa.array(values, type=value_type)
    except CONVERSION_ERRORS:
        for value, row_id in zip(values, row_ids, strict=True):
            try:
                pa.array([value], type=value_type)
            except CONVERSION_ERRORS as error:
                raise FunctionRaised(_failure(error, row_id)) from error
        raise


def _values(child: Any, output: pa.Schema) -> Iterator[Any]:
    if isinstance(child, dict):
        unknown = child.keys() - set(output.names)
        if unknown:
            raise TypeError(f"yielded unknown columns {sorted(unknown)}; the output has {output.names}")
        return iter([child.get(name) for name in output.names])
    if not isinstance(child, tuple):
        raise TypeError(f"yielded a {type(child).__name__}; a NamedTuple, dict or tuple is needed")
    if len(child) != len(output):
        raise TypeError(f"yielded {len(child)} values for the columns {output.names}")
    return iter(child)


def _checked(name: str, result: Any, rows: int, value_type: pa.DataType) -> pa.Array:
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array):
        raise TypeError(f"{name} returned a {type(result).__name__}; a pyarrow Array is needed")
    if len(result) != rows:
        raise ValueError(f"{name} returned {len(result)} values for {rows} rows")
    return result if result.type.equals(value_type) else result.cast(value_type)


def _failure(error: BaseException, row_id: np.uint64) -> RowFailure:
    name = type(error).__qualname__
    return RowFailure(int(row_id), name, f"{name}: {error}", _trace(error))


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
