"""Functions at work in a Python worker: called with Arrow data, failures traced to the row."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.model.functions import Function, FunctionKind
from tidemill.jobs.model.derived import SOURCE_ROW_ID
from tidemill.jobs.model.stages import FunctionCall
from tidemill.spark.opening import OpenFunction, open_function

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


def opened(function: Function) -> OpenFunction:
    try:
        return open_function(function)
    except RAISED as error:
        raise failed(error, f"{function.name} cannot be opened: ") from error


class Column:
    """A function that makes one value per row."""

    def __init__(self, call: FunctionCall, value_type: pa.DataType) -> None:
        self._function = call.function
        self._names = list(call.function.parameters or call.inputs)
        self._type = value_type

    def compute(self, inputs: pa.RecordBatch, row_ids: RowIds) -> pa.Array:
        """The values of these rows; raises FunctionRaised with the row at fault."""
        function = opened(self._function)
        if function.kind is FunctionKind.SCALAR:
            return self._row_by_row(function.call, inputs, row_ids)
        if not len(inputs):
            return pa.array([], self._type)
        try:
            return self._at_once(function, inputs)
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

    def _at_once(self, function: OpenFunction, inputs: pa.RecordBatch) -> pa.Array:
        """A batch function knows its columns by the names it declared, whatever they are bound to."""
        is_batch = function.kind is FunctionKind.BATCH
        given = [inputs.rename_columns(self._names)] if is_batch else inputs.columns
        return _checked(self._function.name, function.call(*given), len(inputs), self._type)


class Chunks:
    """A function that yields any number of rows per row."""

    def __init__(self, call: FunctionCall) -> None:
        self._function = call.function
        self._names = list(call.function.parameters or call.inputs)
        self._output = call.function.output

    def compute(self, inputs: pa.RecordBatch, row_ids: RowIds) -> Children:
        """Everything yielded for these rows; raises FunctionRaised with the row at fault."""
        function = opened(self._function)
        if function.is_vectorised and len(inputs):
            return self._at_once(function, inputs, row_ids)
        return self._row_by_row(function.call, inputs, row_ids)

    def _row_by_row(self, call: Callable[..., Any], inputs: pa.RecordBatch, row_ids: RowIds) -> Children:
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

    def _at_once(self, function: OpenFunction, inputs: pa.RecordBatch, row_ids: RowIds) -> Children:
        """The function says in a column of its answer which row each child comes from."""
        try:
            return self._children(function.call(*self._vectors(function, inputs, row_ids)), row_ids)
        except RAISED as error:
            if len(inputs) <= 1:
                raise FunctionRaised(_failure(error, row_ids[0])) from error
        half = len(inputs) // 2
        first = self._at_once(function, inputs.slice(0, half), row_ids[:half])
        second = self._at_once(function, inputs.slice(half), row_ids[half:])
        return Children(
            np.concatenate([first.parents, second.parents + half]),
            np.concatenate([first.indexes, second.indexes]),
            [pa.concat_arrays(pair) for pair in zip(first.columns, second.columns, strict=True)],
        )

    def _vectors(self, function: OpenFunction, inputs: pa.RecordBatch, row_ids: RowIds) -> list[Any]:
        sources = pa.array(row_ids.astype(np.int64))
        if function.takes_batch:
            columns = [*inputs.columns, sources]
            return [pa.record_batch(columns, names=[*self._names, SOURCE_ROW_ID])]
        rest = iter(inputs.columns)
        return [sources if name.endswith(SOURCE_ROW_ID) else next(rest) for name in function.takes]

    def _children(self, answer: Any, row_ids: RowIds) -> Children:
        table = _as_table(answer, pa.schema([pa.field(SOURCE_ROW_ID, pa.int64()), *self._output]))
        order = np.argsort(row_ids, kind="stable")
        sources = table[SOURCE_ROW_ID].to_numpy().astype(np.uint64)
        parents = order[np.minimum(np.searchsorted(row_ids, sources, sorter=order), len(row_ids) - 1)]
        if np.any(row_ids[parents] != sources):
            raise ValueError(f"{self._function.name} returned a {SOURCE_ROW_ID} that it was not given")
        columns = [table[field.name].combine_chunks() for field in self._output]
        return Children(parents.astype(np.int64), _numbered(parents), columns)


def _numbered(parents: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """For each child how many came before it from the same parent."""
    order = np.argsort(parents, kind="stable")
    ordered = parents[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    numbers = np.empty(len(parents), dtype=np.int32)
    numbers[order] = np.arange(len(parents)) - starts
    return numbers


def _as_table(answer: Any, schema: pa.Schema) -> pa.Table:
    if answer is None:
        return schema.empty_table()
    if not isinstance(answer, pa.RecordBatch | pa.Table):
        raise TypeError(f"returned a {type(answer).__name__}; a pyarrow RecordBatch is needed")
    missing = [name for name in schema.names if name not in answer.schema.names]
    if missing:
        raise TypeError(f"returned no columns {missing}; it has {answer.schema.names}")
    table = pa.Table.from_batches([answer]) if isinstance(answer, pa.RecordBatch) else answer
    return table.select(schema.names).cast(schema)


def yielded_batches(function: Function, source: Any, output: pa.Schema) -> Iterator[pa.RecordBatch]:
    """What a table function makes of its source, in the view's columns; raises FunctionRaised."""
    call = opened(function).call
    try:
        for answer in call(source):
            yield from _as_table(answer, output).to_batches()
    except RAISED as error:
        raise failed(error) from error


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


def failed(error: BaseException, prefix: str = "", row_id: np.uint64 | None = None) -> FunctionRaised:
    """What a function raised, with the row if it is known; what comes from a function inside, as it is."""
    if isinstance(error, FunctionRaised):
        return error
    name = type(error).__qualname__
    found = None if row_id is None else int(row_id)
    return FunctionRaised(RowFailure(found, name, f"{prefix}{name}: {error}", _trace(error)))


def _failure(error: BaseException, row_id: np.uint64) -> RowFailure:
    return failed(error, row_id=row_id).failure


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
