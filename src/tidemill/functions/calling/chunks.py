"""Chunkers: functions that yield any number of rows per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.functions.calling.batches import BoundFunction, Part, Positions, RowIds, Rows
from tidemill.functions.calling.limits import CallProgress, with_timeout
from tidemill.functions.calling.retries import Attempt
from tidemill.functions.calling.scalar import Bisection, RowByRow, to_array
from tidemill.functions.encodings import OpenFunction
from tidemill.functions.failures import FailedRows
from tidemill.jobs.model.views import SOURCE_ROW_ID


class ChunkCalls:
    """Calls an open chunker row by row, or with arrays if it is vectorized."""

    def __init__(self, bound: BoundFunction, function: OpenFunction, progress: CallProgress) -> None:
        self._bound = bound
        self._function = function
        self._output = bound.output
        self._progress = progress
        seconds = bound.function.timeout_seconds
        self._call = with_timeout(function.call if function.is_vectorized else self._all_chunks, seconds)

    def run(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        if self._function.is_vectorized:
            return Bisection(self._call_batch, self._no_chunks, self._progress).run(rows, attempt)
        return RowByRow(self._call, _ChunkCollector(self._output), self._progress).run(rows, attempt)

    def _all_chunks(self, *row: Any) -> list[tuple[Any, ...]]:
        """Exhausts a generator within the call, so that the time limit covers its work."""
        return [_values(chunk, self._output) for chunk in self._function.call(*row)]

    def _no_chunks(self, rows: int) -> pa.RecordBatch:
        return no_chunks(self._output)

    def _call_batch(self, rows: Rows) -> pa.RecordBatch:
        """A column of the result names the row that each chunk comes from."""
        answer = self._call(*self._vectors(rows))
        table = as_table(answer, pa.schema([pa.field(SOURCE_ROW_ID, pa.int64()), *self._output]))
        parents = self._parents(table, rows.row_ids)
        columns = [_combined(table[field.name]) for field in self._output]
        return _chunk_batch(parents, _indexes(parents), columns, self._output)

    def _vectors(self, rows: Rows) -> list[Any]:
        sources = pa.array(rows.row_ids.astype(np.int64))
        if self._function.takes_batch:
            columns = [*rows.inputs.columns, sources]
            return [pa.record_batch(columns, names=[*self._bound.names, SOURCE_ROW_ID])]
        rest = iter(rows.inputs.columns)
        names = self._function.parameter_names
        return [sources if name.endswith(SOURCE_ROW_ID) else next(rest) for name in names]

    def _parents(self, table: pa.Table, row_ids: RowIds) -> Positions:
        order = np.argsort(row_ids, kind="stable")
        sources = table[SOURCE_ROW_ID].to_numpy().astype(np.uint64)
        parents = order[np.minimum(np.searchsorted(row_ids, sources, sorter=order), len(row_ids) - 1)]
        if np.any(row_ids[parents] != sources):
            name = self._bound.function.name
            raise ValueError(f"{name} returned a {SOURCE_ROW_ID} that it was not given")
        found: Positions = parents.astype(np.int64)
        return found


class _ChunkCollector:
    """Collects the chunks of one row after another."""

    def __init__(self, output: pa.Schema) -> None:
        self._output = output
        self._counts: list[int] = []
        self._chunks: list[tuple[Any, ...]] = []

    def add(self, result: list[tuple[Any, ...]]) -> None:
        self._chunks += result
        self._counts.append(len(result))

    def add_failed(self) -> None:
        self._counts.append(0)

    def take(self, failures: list[FailedRows]) -> Part:
        parents = np.repeat(np.arange(len(self._counts)), self._counts)
        columns, found = [], {failed.start: failed for failed in failures}
        for number, field in enumerate(self._output):
            array, errors = to_array([chunk[number] for chunk in self._chunks], field.type)
            columns.append(array)
            found |= {int(parents[at]): FailedRows(int(parents[at]), 1, raised) for at, raised in errors}
        batch = _chunk_batch(parents, _indexes(parents), columns, self._output)
        # A row has all of its chunks or none.
        kept = batch.filter(pa.array(~np.isin(parents, list(found)))) if found else batch
        rows = len(self._counts)
        self._counts, self._chunks = [], []
        return Part(rows, kept, tuple(found[start] for start in sorted(found)))


def as_table(answer: Any, schema: pa.Schema) -> pa.Table:
    """The result of a function as a table with these columns; raises TypeError if one is missing."""
    if answer is None:
        return schema.empty_table()
    if not isinstance(answer, pa.RecordBatch | pa.Table):
        raise TypeError(f"returned a {type(answer).__name__}; a pyarrow RecordBatch is needed")
    missing = [name for name in schema.names if name not in answer.schema.names]
    if missing:
        raise TypeError(f"returned no columns {missing}; it has {answer.schema.names}")
    table = pa.Table.from_batches([answer]) if isinstance(answer, pa.RecordBatch) else answer
    return table.select(schema.names).cast(schema)


def no_chunks(output: pa.Schema) -> pa.RecordBatch:
    return _chunk_batch([], [], [pa.array([], field.type) for field in output], output)


def chunk_schema(output: pa.Schema) -> pa.Schema:
    """Two columns come first: the position of the parent row, and the index among its chunks."""
    return pa.schema([pa.field("parent", pa.int64()), pa.field("index", pa.int32()), *output])


def _combined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], column.type), *column.chunks])


def _chunk_batch(
    parents: Positions | Sequence[int],
    indexes: npt.NDArray[np.int32] | Sequence[int],
    columns: Sequence[pa.Array],
    output: pa.Schema,
) -> pa.RecordBatch:
    positions = [pa.array(parents, pa.int64()), pa.array(indexes, pa.int32())]
    return pa.record_batch([*positions, *columns], names=chunk_schema(output).names)


def _indexes(parents: Positions) -> npt.NDArray[np.int32]:
    """For each chunk, how many of the same parent came before it."""
    order = np.argsort(parents, kind="stable")
    ordered = parents[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    numbers = np.empty(len(parents), dtype=np.int32)
    numbers[order] = np.arange(len(parents)) - starts
    return numbers


def _values(chunk: Any, output: pa.Schema) -> tuple[Any, ...]:
    if isinstance(chunk, dict):
        unknown = chunk.keys() - set(output.names)
        if unknown:
            raise TypeError(f"yielded unknown columns {sorted(unknown)}; the output has {output.names}")
        return tuple(chunk.get(name) for name in output.names)
    if not isinstance(chunk, tuple):
        raise TypeError(f"yielded a {type(chunk).__name__}; a NamedTuple, dict or tuple is needed")
    if len(chunk) != len(output):
        raise TypeError(f"yielded {len(chunk)} values for the columns {output.names}")
    return tuple(chunk)
