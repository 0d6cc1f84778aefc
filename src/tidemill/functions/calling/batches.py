"""What goes into a function and what comes out: batches of rows, and parts of the result in row order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.model.functions import VALUE_FIELD, Function
from tidemill.functions.blobs import Blob, BlobSource
from tidemill.functions.failures import FailedRows

RowIds: TypeAlias = npt.NDArray[np.uint64]
Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BoundFunction:
    """A function with the names of its input columns and the schema of its output."""

    function: Function
    names: tuple[str, ...]
    output: pa.Schema


@dataclass(frozen=True)
class Rows:
    """A batch of rows to call a function with; `blobs` has the sources of blob columns by column number."""

    inputs: pa.RecordBatch
    row_ids: RowIds
    blobs: Mapping[int, Sequence[BlobSource | None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.row_ids)

    def slice(self, start: int, rows: int) -> Rows:
        end = start + rows
        blobs = {number: sources[start:end] for number, sources in self.blobs.items()}
        return Rows(self.inputs.slice(start, rows), self.row_ids[start:end], blobs)

    def take(self, positions: Positions) -> Rows:
        blobs = {
            number: [sources[position] for position in positions] for number, sources in self.blobs.items()
        }
        return Rows(self.inputs.take(pa.array(positions)), self.row_ids[positions], blobs)

    def values(self) -> Iterator[tuple[Any, ...]]:
        """Yields the rows as tuples of Python values."""
        if not self.inputs.num_columns:
            return repeat((), len(self))
        columns = [
            _open_blobs(self.blobs[number]) if number in self.blobs else column.to_pylist()
            for number, column in enumerate(self.inputs.columns)
        ]
        return zip(*columns, strict=True)


@dataclass(frozen=True)
class Part:
    """The result of the next `rows` rows.

    A column function has one value per row, null where the row failed. A chunker has any number of rows, with
    the position of their parent in a column, and none for a row that failed.
    """

    rows: int
    values: pa.RecordBatch
    failures: tuple[FailedRows, ...] = ()


# Makes the result of N rows that all failed.
NoValues: TypeAlias = Callable[[int], pa.RecordBatch]


def value_batch(values: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([values], names=[VALUE_FIELD])


def failed_part(failed: FailedRows, no_values: NoValues) -> Part:
    """The part of rows that all failed for one reason. It starts at them, so `start` becomes 0."""
    return Part(failed.rows, no_values(failed.rows), (replace(failed, start=0),))


def _open_blobs(sources: Sequence[BlobSource | None]) -> Iterator[Blob | None]:
    for source in sources:
        if source is None:
            yield None
            continue
        with Blob(source) as blob:
            yield blob
