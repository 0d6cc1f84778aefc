"""What goes to a function and what comes back: rows, and parts of the result in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.model.functions import Function
from tidemill.functions.blobs import Blob, BlobSource
from tidemill.functions.failures import FailedRows

RowIds: TypeAlias = npt.NDArray[np.uint64]
Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Definition:
    """A function as it is to be called: the names its columns have for it, and what it has to give."""

    function: Function
    names: tuple[str, ...]
    output: pa.Schema


@dataclass(frozen=True)
class Rows:
    """Rows to call a function with; the columns with the numbers in `blobs` are read from there."""

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
        blobs = {number: [sources[place] for place in positions] for number, sources in self.blobs.items()}
        return Rows(self.inputs.take(pa.array(positions)), self.row_ids[positions], blobs)

    def values(self) -> Iterator[tuple[Any, ...]]:
        """The rows one by one, as Python values."""
        if not self.inputs.num_columns:
            return repeat((), len(self))
        columns = [
            _opened(self.blobs[number]) if number in self.blobs else column.to_pylist()
            for number, column in enumerate(self.inputs.columns)
        ]
        return zip(*columns, strict=True)


@dataclass(frozen=True)
class Part:
    """What became of the next `rows`: their values, without those of rows that failed.

    Values are one per row, null where it failed; or any number, with the position of their row as a column.
    """

    rows: int
    values: pa.RecordBatch
    failures: tuple[FailedRows, ...] = ()


NoValues: TypeAlias = Callable[[int], pa.RecordBatch]


def failed_part(failed: FailedRows, no_values: NoValues) -> Part:
    """The part of rows that all failed for the same reason; where it starts says the place it has."""
    return Part(failed.rows, no_values(failed.rows), (replace(failed, start=0),))


def _opened(sources: Sequence[BlobSource | None]) -> Iterator[Blob | None]:
    for source in sources:
        if source is None:
            yield None
            continue
        with Blob(source) as blob:
            yield blob
