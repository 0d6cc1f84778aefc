"""Functions that make one value per row, wherever they are called."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from tidemill.catalog.model.functions import value_output
from tidemill.functions.blobs import FileSource
from tidemill.functions.calling.batches import Definition, RowIds, Rows
from tidemill.functions.calling.retries import Round, combined
from tidemill.functions.calling.scalar import as_values
from tidemill.functions.failures import FunctionRaised
from tidemill.functions.places import CallSettings, Place
from tidemill.jobs.model.failures import RowFailure
from tidemill.jobs.model.stages import FunctionCall

__all__ = ["CallSettings", "ColumnFunction", "Computed", "FunctionRaised", "RowIds"]


@dataclass(frozen=True)
class Computed:
    """The values of some rows: null at those that failed and were skipped."""

    values: pa.Array
    failures: tuple[RowFailure, ...] = ()


class ColumnFunction:
    """A function to be called with batch after batch; the end of the block gives back what that took."""

    def __init__(
        self,
        call: FunctionCall,
        value_type: pa.DataType,
        settings: CallSettings,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        names = tuple(call.function.parameters or call.inputs)
        self._output = value_output(value_type)
        definition = Definition(call.function, names, self._output)
        self._place = Place(definition, settings, lambda rows: as_values(pa.nulls(rows, value_type)), sleep)

    def __enter__(self) -> ColumnFunction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._place.close()

    def compute(
        self,
        inputs: pa.RecordBatch,
        row_ids: RowIds,
        blobs: Mapping[int, Sequence[BinaryIO | None]] | None = None,
    ) -> Computed:
        """The values of these rows; raises FunctionRaised when a row fails and may not be skipped."""
        sources = {
            number: [None if file is None else FileSource(file) for file in files]
            for number, files in (blobs or {}).items()
        }
        done = self._place.run(Rows(inputs, row_ids, sources))
        return Computed(self._values(done.rounds, len(row_ids)), done.failures)

    def _values(self, rounds: Sequence[Round], rows: int) -> pa.Array:
        """What a row got last is what counts."""
        [values] = combined([part.values for each in rounds for part in each.parts], self._output)
        if len(rounds) == 1:
            return values
        order, start = np.empty(rows, dtype=np.int64), 0
        for each in rounds:
            order[each.positions] = np.arange(start, start + len(each.positions))
            start += len(each.positions)
        return values.take(pa.array(order))
