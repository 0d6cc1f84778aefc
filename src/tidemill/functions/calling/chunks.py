"""Functions that yield any number of rows per row, called in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.functions.calling.batches import Definition, Part, Positions, RowIds, Rows
from tidemill.functions.calling.limits import Marks, limited
from tidemill.functions.calling.retries import Attempt
from tidemill.functions.calling.scalar import OneByOne, fitted
from tidemill.functions.calling.vectorized import Together
from tidemill.functions.encodings import OpenFunction
from tidemill.functions.failures import FailedRows
from tidemill.jobs.model.derived import SOURCE_ROW_ID


class ChunkCalls:
    """Calls an open chunker with rows, or with arrays if it takes those."""

    def __init__(self, definition: Definition, function: OpenFunction, marks: Marks) -> None:
        self._definition = definition
        self._function = function
        self._output = definition.output
        self._marks = marks
        seconds = definition.function.timeout_seconds
        self._call = limited(function.call if function.is_vectorised else self._all_children, seconds)

    def sweep(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        if self._function.is_vectorised:
            return Together(self._at_once, self._no_children, self._marks).sweep(rows, attempt)
        return OneByOne(self._call, _Children(self._output), self._marks).sweep(rows, attempt)

    def _all_children(self, *row: Any) -> list[tuple[Any, ...]]:
        """A generator does its work while it is read, so that belongs to the call."""
        return [_values(child, self._output) for child in self._function.call(*row)]

    def _no_children(self, rows: int) -> pa.RecordBatch:
        return no_children(self._output)

    def _at_once(self, rows: Rows) -> pa.RecordBatch:
        """The function says in a column of its answer which row each child comes from."""
        answer = self._call(*self._vectors(rows))
        table = as_table(answer, pa.schema([pa.field(SOURCE_ROW_ID, pa.int64()), *self._output]))
        parents = self._parents(table, rows.row_ids)
        columns = [_combined(table[field.name]) for field in self._output]
        return _placed(parents, _numbered(parents), columns, self._output)

    def _vectors(self, rows: Rows) -> list[Any]:
        sources = pa.array(rows.row_ids.astype(np.int64))
        if self._function.takes_batch:
            columns = [*rows.inputs.columns, sources]
            return [pa.record_batch(columns, names=[*self._definition.names, SOURCE_ROW_ID])]
        rest = iter(rows.inputs.columns)
        return [sources if name.endswith(SOURCE_ROW_ID) else next(rest) for name in self._function.takes]

    def _parents(self, table: pa.Table, row_ids: RowIds) -> Positions:
        order = np.argsort(row_ids, kind="stable")
        sources = table[SOURCE_ROW_ID].to_numpy().astype(np.uint64)
        parents = order[np.minimum(np.searchsorted(row_ids, sources, sorter=order), len(row_ids) - 1)]
        if np.any(row_ids[parents] != sources):
            name = self._definition.function.name
            raise ValueError(f"{name} returned a {SOURCE_ROW_ID} that it was not given")
        found: Positions = parents.astype(np.int64)
        return found


class _Children:
    """Collects the children of one row after the other."""

    def __init__(self, output: pa.Schema) -> None:
        self._output = output
        self._counts: list[int] = []
        self._children: list[tuple[Any, ...]] = []

    def add(self, result: list[tuple[Any, ...]]) -> None:
        self._children += result
        self._counts.append(len(result))

    def add_nothing(self) -> None:
        self._counts.append(0)

    def take(self, failures: list[FailedRows]) -> Part:
        parents = np.repeat(np.arange(len(self._counts)), self._counts)
        columns, found = [], {failed.start: failed for failed in failures}
        for number, field in enumerate(self._output):
            array, misfits = fitted([child[number] for child in self._children], field.type)
            columns.append(array)
            found |= {
                int(parents[place]): FailedRows(int(parents[place]), 1, what) for place, what in misfits
            }
        batch = _placed(parents, _numbered(parents), columns, self._output)
        # A row has all of its children or none.
        kept = batch.filter(pa.array(~np.isin(parents, list(found)))) if found else batch
        rows = len(self._counts)
        self._counts, self._children = [], []
        return Part(rows, kept, tuple(found[start] for start in sorted(found)))


def as_table(answer: Any, schema: pa.Schema) -> pa.Table:
    """What a function answered, in these columns."""
    if answer is None:
        return schema.empty_table()
    if not isinstance(answer, pa.RecordBatch | pa.Table):
        raise TypeError(f"returned a {type(answer).__name__}; a pyarrow RecordBatch is needed")
    missing = [name for name in schema.names if name not in answer.schema.names]
    if missing:
        raise TypeError(f"returned no columns {missing}; it has {answer.schema.names}")
    table = pa.Table.from_batches([answer]) if isinstance(answer, pa.RecordBatch) else answer
    return table.select(schema.names).cast(schema)


def no_children(output: pa.Schema) -> pa.RecordBatch:
    return _placed([], [], [pa.array([], field.type) for field in output], output)


def placed_schema(output: pa.Schema) -> pa.Schema:
    """Children have their place first: the position of their parent, and their number there."""
    return pa.schema([pa.field("parent", pa.int64()), pa.field("index", pa.int32()), *output])


def _combined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], column.type), *column.chunks])


def _placed(
    parents: Positions | Sequence[int],
    indexes: npt.NDArray[np.int32] | Sequence[int],
    columns: Sequence[pa.Array],
    output: pa.Schema,
) -> pa.RecordBatch:
    places = [pa.array(parents, pa.int64()), pa.array(indexes, pa.int32())]
    return pa.record_batch([*places, *columns], names=placed_schema(output).names)


def _numbered(parents: Positions) -> npt.NDArray[np.int32]:
    """For each child how many came before it from the same parent."""
    order = np.argsort(parents, kind="stable")
    ordered = parents[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    numbers = np.empty(len(parents), dtype=np.int32)
    numbers[order] = np.arange(len(parents)) - starts
    return numbers


def _values(child: Any, output: pa.Schema) -> tuple[Any, ...]:
    if isinstance(child, dict):
        unknown = child.keys() - set(output.names)
        if unknown:
            raise TypeError(f"yielded unknown columns {sorted(unknown)}; the output has {output.names}")
        return tuple(child.get(name) for name in output.names)
    if not isinstance(child, tuple):
        raise TypeError(f"yielded a {type(child).__name__}; a NamedTuple, dict or tuple is needed")
    if len(child) != len(output):
        raise TypeError(f"yielded {len(child)} values for the columns {output.names}")
    return tuple(child)
