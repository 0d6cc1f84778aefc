"""The results of a view's functions, in a task: taken from where they are kept, and computed only otherwise.

A result depends on nothing but the values of its inputs. So before a function is called for a row,

1. the value that the view holds is looked at: if a fingerprint over the row's inputs and this value is among
   those kept for the function, the value is right and stays;
2. checkpoints are searched for a result of the same row and the same inputs, left by an attempt that was
   killed or retried;
3. what the view holds for source rows that are gone is searched for a result of the same inputs (see
   `gone_results`);
4. the function is called for the rest, in batches that adapt to how long a call takes, and what it returns
   goes into checkpoints.

Results of 2 to 4 get fingerprints, which count once the refresh has been published. For the rows of a
chunker the result is the list of its chunks, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.functions.api import ChunkFunction, Chunks, Computed
from tidemill.jobs.model.columns import BatchPolicy
from tidemill.jobs.model.failures import RowFailure
from tidemill.jobs.model.views import CHILD_INDEX, SOURCE_ROW_ID, KeptResults
from tidemill.lance.checkpoint_files import CheckpointValues, find_checkpoints
from tidemill.lance.fingerprints import Hashes, KnownResults, Mask, fingerprints, paired, write_segment
from tidemill.lance.view_writer import HeldRows
from tidemill.spark.kernels import BatchSizer, CheckpointBuffer
from tidemill.spark.reading import Positions, RowIds
from tidemill.spark.views.gone_results import NOTHING_FOUND, GoneResults, HeldValues


class RowFunction(Protocol):
    """A function that has one result for each row."""

    def compute(self, inputs: pa.RecordBatch, row_ids: RowIds) -> Computed: ...


class ChunkLists:
    """A chunker as a function with one result per row: the list of its chunks, null where it failed."""

    def __init__(self, function: ChunkFunction, output: pa.Schema) -> None:
        self._function = function
        self._output = output

    def compute(self, inputs: pa.RecordBatch, row_ids: RowIds) -> Computed:
        chunks = self._function.compute(inputs, row_ids)
        failed = {failure.row_id for failure in chunks.failures}
        is_failed = np.isin(row_ids, np.array(sorted(row for row in failed if row is not None), np.uint64))
        return Computed(_as_lists(chunks, len(row_ids), is_failed, self._output), chunks.failures)


def _as_lists(chunks: Chunks, rows: int, is_failed: Mask, output: pa.Schema) -> pa.Array:
    ordered = bool(np.all(np.diff(chunks.parents) >= 0))
    order = np.arange(len(chunks.parents)) if ordered else np.argsort(chunks.parents, kind="stable")
    columns = [column if ordered else column.take(pa.array(order)) for column in chunks.columns]
    offsets = np.searchsorted(chunks.parents[order], np.arange(rows + 1), side="left")
    return _lists(offsets, columns, output, is_failed)


def _lists(
    offsets: npt.NDArray[np.int64],
    columns: Sequence[pa.Array],
    output: pa.Schema,
    is_null: Mask | None = None,
) -> pa.Array:
    typed = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(columns, output, strict=True)
    ]
    chunks = pa.StructArray.from_arrays(typed, fields=list(output))
    mask = None if is_null is None or not is_null.any() else pa.array(is_null)
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), chunks, mask=mask)


def list_type(output: pa.Schema) -> pa.DataType:
    return pa.large_list(pa.struct(list(output)))


def held_values(held: HeldRows | None, row_ids: RowIds, column: str) -> HeldValues | None:
    """The values in a column; a source row that the view has several rows of has none."""
    if held is None:
        return None
    order, first, counts = _grouped(held, row_ids)
    is_there = counts == 1
    places = np.zeros(len(row_ids), dtype=np.int64)
    places[is_there] = order[first[is_there]]
    values = held.rows.column(column).take(pa.array(places, mask=~is_there))
    return HeldValues(values, is_there)


def held_chunks(held: HeldRows | None, row_ids: RowIds, output: pa.Schema) -> HeldValues:
    """The chunks of each source row, in order; those of which one is missing are not there."""
    if held is None:
        no_chunks = [pa.array([], field.type) for field in output]
        return HeldValues(
            _lists(np.zeros(len(row_ids) + 1, np.int64), no_chunks, output), np.ones(len(row_ids), np.bool_)
        )
    order, first, counts = _grouped(held, row_ids)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    numbers = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    places = order[np.repeat(first, counts) + numbers]
    columns = [held.rows.column(name).take(pa.array(places)) for name in output.names]
    indexes = held.rows.column(CHILD_INDEX).to_numpy(zero_copy_only=False)[places]
    is_there = np.ones(len(row_ids), dtype=np.bool_)
    is_there[np.repeat(np.arange(len(row_ids)), counts)[indexes != numbers]] = False
    return HeldValues(_lists(offsets, columns, output), is_there)


def _grouped(held: HeldRows, row_ids: RowIds) -> tuple[Positions, Positions, Positions]:
    """An order of the held rows, and where in it those of each source row begin and how many there are."""
    keys = held.rows.column(SOURCE_ROW_ID).to_numpy(zero_copy_only=False)
    places = np.zeros(len(keys), np.int64)
    if CHILD_INDEX in held.rows.schema.names:
        places = held.rows.column(CHILD_INDEX).to_numpy(zero_copy_only=False)
    order = np.lexsort((places, keys))
    wanted = row_ids.view(np.int64)
    first = np.searchsorted(keys[order], wanted, side="left")
    return order, first, np.searchsorted(keys[order], wanted, side="right") - first


@dataclass(frozen=True)
class Results:
    """One result per row, the failures, and for which rows the function was called."""

    values: pa.Array
    failures: tuple[RowFailure, ...]
    is_called: Mask


class ResultComputer:
    """One of a view's functions in a task. Without `kept` it is called for every row.

    With `takes_row_ids` the ids count as inputs.
    """

    def __init__(
        self,
        function: RowFunction,
        value_type: pa.DataType,
        kept: KeptResults | None,
        version: int,
        batches: BatchPolicy,
        *,
        with_failures: bool,
        takes_row_ids: bool = False,
    ) -> None:
        self._function = function
        self._takes_row_ids = takes_row_ids
        self._type = value_type
        self._kept = kept
        self._sizer = BatchSizer(batches)
        self._known = KnownResults(() if kept is None else kept.segments)
        # A task that runs a second time finds what the first one left.
        found = [] if kept is None else find_checkpoints(kept.checkpoint_location, kept.checkpoints)
        self._saved = CheckpointValues(found, with_failures=with_failures)
        self._buffer = None if kept is None else CheckpointBuffer(kept.checkpoint_location, version, batches)
        self._new: list[Hashes] = []

    @property
    def is_keeping(self) -> bool:
        return self._kept is not None

    @property
    def looks_at_view(self) -> bool:
        """Whether a value that the view holds may be found to be right."""
        return self._kept is not None and bool(self._kept.segments)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            # The job may fail, but what it has computed need not be computed again.
            self.save()

    def save(self) -> None:
        """Checkpoints what was computed, unless that is quicker to compute again than to write."""
        if self._buffer is not None:
            self._buffer.flush()

    def write_segment(self) -> str | None:
        """Writes the fingerprints of new results; returns the path, None if there are none."""
        if self._kept is None or not self._new:
            return None
        return write_segment(self._kept.segment_location, np.concatenate(self._new))

    def results(
        self,
        inputs: pa.RecordBatch,
        row_ids: RowIds,
        held: HeldValues | None,
        gone: GoneResults | None = None,
    ) -> Results:
        if self._kept is None:
            computed = self._called(inputs, row_ids, None)
            return Results(computed.values, computed.failures, np.ones(len(row_ids), np.bool_))
        hashes = self._hashes(inputs, row_ids)
        is_held = self._find_held(hashes, held)
        wanted = np.flatnonzero(~is_held)
        saved = self._saved.find(row_ids[wanted], hashes[wanted])
        is_called = ~is_held
        is_called[wanted[saved.positions]] = False
        missing = np.flatnonzero(is_called)
        found = NOTHING_FOUND if gone is None else gone.find(_rows_of(inputs, missing))
        is_called[missing[found.positions]] = False
        called = np.flatnonzero(is_called)
        computed = self._called(_rows_of(inputs, called), row_ids[called], hashes[called])
        parts = [(called, computed.values)]
        if saved.values is not None:
            parts.append((wanted[saved.positions], saved.values))
        if found.values is not None:
            parts.append((missing[found.positions], found.values))
        if held is not None and is_held.any():
            held_positions = np.flatnonzero(is_held)
            parts.append((held_positions, held.values.take(pa.array(held_positions))))
        values = _assembled(parts, self._type)
        failures = (*computed.failures, *saved.failures)
        self._note(row_ids, hashes, values, is_held, failures)
        return Results(values, failures, is_called)

    def are_right(self, inputs: pa.RecordBatch, row_ids: RowIds, held: HeldValues) -> Mask:
        """Which of the values are what the function has returned for these rows."""
        return self._find_held(self._hashes(inputs, row_ids), held)

    def _hashes(self, inputs: pa.RecordBatch, row_ids: RowIds) -> Hashes:
        ids = [pa.array(row_ids)] if self._takes_row_ids else []
        return fingerprints([*inputs.columns, *ids])

    def _find_held(self, hashes: Hashes, held: HeldValues | None) -> Mask:
        if held is None or not self.looks_at_view:
            return np.zeros(len(hashes), dtype=np.bool_)
        return held.is_there & self._known.match(paired(hashes, fingerprints([held.values])))

    def _note(
        self,
        row_ids: RowIds,
        hashes: Hashes,
        values: pa.Array,
        is_held: Mask,
        failures: Sequence[RowFailure],
    ) -> None:
        """Remembers the fingerprints of new results. A failure is none: it may succeed the next time."""
        failed = np.array([f.row_id for f in failures if f.row_id is not None], dtype=np.uint64)
        new = np.flatnonzero(~is_held & ~np.isin(row_ids, failed))
        if len(new):
            narrowed = values if len(new) == len(values) else values.take(pa.array(new))
            self._new.append(paired(hashes[new], fingerprints([narrowed])))

    def _called(self, inputs: pa.RecordBatch, row_ids: RowIds, hashes: Hashes | None) -> Computed:
        parts: list[Computed] = []
        start = 0
        while start < len(row_ids):
            count = min(self._sizer.rows, len(row_ids) - start)
            end = start + count
            part = None if hashes is None else hashes[start:end]
            parts.append(self._call(inputs.slice(start, count), row_ids[start:end], part))
            start = end
        failures = tuple(failure for part in parts for failure in part.failures)
        return Computed(pa.concat_arrays([pa.nulls(0, self._type), *(p.values for p in parts)]), failures)

    def _call(self, inputs: pa.RecordBatch, row_ids: RowIds, hashes: Hashes | None) -> Computed:
        began_at = monotonic()
        computed = self._function.compute(inputs, row_ids)
        seconds = monotonic() - began_at
        self._sizer.record_batch_time(len(row_ids), seconds)
        if self._buffer is not None:
            self._buffer.add(row_ids, computed, seconds, hashes)
        return computed


def _rows_of(inputs: pa.RecordBatch, rows: Positions) -> pa.RecordBatch:
    return inputs if len(rows) == len(inputs) else inputs.take(pa.array(rows))


def _assembled(parts: Sequence[tuple[Positions, pa.Array]], kind: pa.DataType) -> pa.Array:
    """The values of all parts in the order of their positions."""
    filled = [(positions, values) for positions, values in parts if len(positions)]
    positions = np.concatenate([np.empty(0, np.int64), *(positions for positions, _ in filled)])
    # Checkpoints may have their values in any order.
    if len(filled) == 1 and bool(np.all(np.diff(positions) > 0)):
        return filled[0][1]
    order = np.argsort(positions)
    return pa.concat_arrays([pa.nulls(0, kind), *(values for _, values in filled)]).take(pa.array(order))
