"""Functions that yield any number of rows per row, wherever they are called."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.functions.calling.batches import Definition, Positions, RowIds, Rows
from tidemill.functions.calling.chunks import no_children, placed_schema
from tidemill.functions.calling.retries import Round, combined
from tidemill.functions.places import CallSettings, Place
from tidemill.jobs.model.failures import RowFailure
from tidemill.jobs.model.stages import FunctionCall


@dataclass(frozen=True)
class Children:
    """Rows a chunker yielded: for each the position of its parent and its index there, and the columns."""

    parents: Positions
    indexes: npt.NDArray[np.int32]
    columns: Sequence[pa.Array]
    failures: tuple[RowFailure, ...] = ()


class ChunkFunction:
    """A chunker to be called with batch after batch; the end of the block gives back what that took."""

    def __init__(
        self, call: FunctionCall, settings: CallSettings, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        output = call.function.output
        names = tuple(call.function.parameters or call.inputs)
        self._schema = placed_schema(output)
        definition = Definition(call.function, names, output)
        self._place = Place(definition, settings, lambda rows: no_children(output), sleep)

    def __enter__(self) -> ChunkFunction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._place.close()

    def compute(self, inputs: pa.RecordBatch, row_ids: RowIds) -> Children:
        """Everything yielded for these rows; raises FunctionRaised with the row at fault."""
        done = self._place.run(Rows(inputs, row_ids))
        batches = [part.values for each in done.rounds for part in each.parts]
        _, indexes, *columns = combined(batches, self._schema)
        parents = np.concatenate([np.empty(0, np.int64), *(_parents(each) for each in done.rounds)])
        if len(done.rounds) == 1:
            return Children(parents, indexes.to_numpy(), columns, done.failures)
        order = np.argsort(parents, kind="stable")
        taken = [column.take(pa.array(order)) for column in columns]
        return Children(parents[order], indexes.to_numpy()[order], taken, done.failures)


def _parents(each: Round) -> Positions:
    """A part counts from its own first row."""
    starts = np.cumsum([0, *(part.rows for part in each.parts)])
    places = [
        part.values.column(0).to_numpy() + start for part, start in zip(each.parts, starts, strict=False)
    ]
    found: Positions = each.positions[np.concatenate([np.empty(0, np.int64), *places])]
    return found
