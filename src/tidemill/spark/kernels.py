"""What a task does to fill columns: plain functions over Lance fragments and Arrow batches."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Final

import lance
import numpy as np
import pyarrow as pa

from tidemill.catalog.model.functions import FunctionEncoding
from tidemill.jobs.model.coverage import member_mask, row_set
from tidemill.jobs.model.derived import path_of, quoted
from tidemill.jobs.model.plans import FragmentWork
from tidemill.jobs.model.stages import BatchPolicy, ColumnFile, FillColumn, FunctionCall
from tidemill.lance.changes import field_ids, files_of
from tidemill.lance.checkpoints import CheckpointValues, write_checkpoint
from tidemill.lance.column_files import ColumnFileWriter, describe_file, get_fragment, merged
from tidemill.spark.functions import Column, RowIds
from tidemill.spark.scratch import TaskReport

SCAN_ROWS: Final = 65536
# Of a table with blobs, which may be large, few rows are held at a time.
BLOB_SCAN_ROWS: Final = 64
BLOB_MARK: Final = b"lance-encoding:blob"
# Functions get the bytes, not where they are.
WHOLE_BLOBS: Final = "all_binary"
FASTEST_GROWTH: Final = 8.0
OFFSET_MASK: Final = np.uint64(0xFFFFFFFF)


class BatchSizer:
    """Batches grow or shrink toward the time one of them should take."""

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self.rows = min(max(policy.initial_rows, policy.min_rows), policy.max_rows)

    def took(self, rows: int, seconds: float) -> None:
        if rows < self.rows:
            return
        target = self._policy.target.total_seconds()
        factor = min(FASTEST_GROWTH, max(1 / FASTEST_GROWTH, target / max(seconds, 1e-6)))
        self.rows = min(max(int(self.rows * factor), self._policy.min_rows), self._policy.max_rows)


class ColumnFiller:
    """Computes values, in batches; puts results in safety every flush interval."""

    def __init__(self, stage: FillColumn, report: TaskReport) -> None:
        self._stage = stage
        self._report = report
        is_unpacked = stage.struct_fields[0] is not None
        self._type = stage.call.function.value_type if is_unpacked else stage.columns.field(0).type
        self._column = Column(stage.call, self._type)
        self._known = CheckpointValues(stage.checkpoints)
        self._sizer = BatchSizer(stage.batches)
        self._unsaved: list[tuple[RowIds, pa.Array]] = []
        self._saved_at = monotonic()
        self.reused = 0

    def values(self, inputs: pa.RecordBatch, row_ids: RowIds) -> pa.Array:
        """The values of these rows, from checkpoints where they have them."""
        positions, known = self._known.find(row_ids)
        if known is None or not len(positions):
            return self._computed(inputs, row_ids)
        self.reused += len(positions)
        self._report.rows_done(len(positions))
        rest = np.setdiff1d(np.arange(len(row_ids)), positions, assume_unique=True)
        values = self._computed(inputs.take(pa.array(rest)), row_ids[rest])
        order = np.argsort(np.concatenate([rest, positions]), kind="stable")
        return pa.concat_arrays([values, known]).take(pa.array(order))

    def _computed(self, inputs: pa.RecordBatch, row_ids: RowIds) -> pa.Array:
        arrays = [pa.array([], self._type)]
        start = 0
        while start < len(row_ids):
            ids = row_ids[start : start + self._sizer.rows]
            began_at = monotonic()
            values = self._column.compute(inputs.slice(start, len(ids)), ids)
            self._sizer.took(len(ids), monotonic() - began_at)
            arrays.append(values)
            self._keep(ids, values)
            self._report.rows_done(len(ids))
            start += len(ids)
        return pa.concat_arrays(arrays)

    def _keep(self, row_ids: RowIds, values: pa.Array) -> None:
        self._unsaved.append((row_ids, values))
        if monotonic() - self._saved_at >= self._stage.batches.flush_interval.total_seconds():
            write_checkpoint(
                self._stage.checkpoint_location,
                self._stage.version,
                np.concatenate([ids for ids, _ in self._unsaved]),
                pa.concat_arrays([array for _, array in self._unsaved]),
            )
            self._unsaved.clear()
            self._saved_at = monotonic()


def fill_fragments(stage: FillColumn, work: Sequence[FragmentWork], report: TaskReport) -> list[ColumnFile]:
    """Writes the column file of each fragment: computed values, and those it had for the other rows."""
    dataset = lance.dataset(stage.location, version=stage.version)
    filler = ColumnFiller(stage, report)
    files = [_fill_fragment(dataset, stage, fragment, filler) for fragment in work]
    report.flush()
    return files


def _fill_fragment(
    dataset: lance.LanceDataset, stage: FillColumn, work: FragmentWork, filler: ColumnFiller
) -> ColumnFile:
    fragment = get_fragment(dataset, work.fragment_id)
    inputs = input_columns(stage.call)
    # Rows that are left out keep the values they have.
    kept = {} if work.rows is None else {name: quoted(name) for name in stage.columns.names}
    reused_before = filler.reused
    done: list[RowIds] = []
    with ColumnFileWriter(dataset, stage.location, fragment.physical_rows, stage.columns) as writer:
        for batch in fragment.scanner(
            columns={**inputs, **kept},
            with_row_id=True,
            with_row_address=True,
            batch_size=scan_rows(dataset),
            blob_handling=WHOLE_BLOBS,
        ).to_batches():
            row_ids = batch["_rowid"].to_numpy()
            given = batch.select(list(inputs))
            if work.rows is None:
                columns = _unpacked(stage, filler.values(given, row_ids))
                done.append(row_ids)
            else:
                wanted = np.flatnonzero(member_mask(row_ids, work.rows))
                made = _unpacked(stage, filler.values(given.take(pa.array(wanted)), row_ids[wanted]))
                columns = [
                    merged(batch[name], wanted, values)
                    for name, values in zip(stage.columns.names, made, strict=True)
                ]
                done.append(row_ids[wanted])
            writer.write((batch["_rowaddr"].to_numpy() & OFFSET_MASK).astype(np.int64), columns)
    rows = row_set(np.sort(np.concatenate(done))) if done else row_set(np.empty(0, dtype=np.uint64))
    return ColumnFile(
        fragment_id=work.fragment_id,
        input_files=files_of(fragment, field_ids(dataset, stage.call.inputs)),
        path=writer.path,
        description=describe_file(dataset, writer.path),
        physical_rows=fragment.physical_rows,
        rows=rows,
        reused_rows=filler.reused - reused_before,
    )


def scan_rows(dataset: lance.LanceDataset) -> int:
    has_blobs = any(BLOB_MARK in (field.metadata or {}) for field in dataset.schema)
    return BLOB_SCAN_ROWS if has_blobs else SCAN_ROWS


def input_columns(call: FunctionCall, prefix: str = "__input") -> dict[str, str]:
    """What to read for a function, under names of its own: a table or view may use any other.

    An expression is evaluated by the scan: what is read is its value.
    """
    if call.function.encoding is FunctionEncoding.SQL:
        return {f"{prefix}_0": call.function.payload.decode()}
    return {f"{prefix}_{number}": path_of(name) for number, name in enumerate(call.inputs)}


def _unpacked(stage: FillColumn, values: pa.Array) -> list[pa.Array]:
    """The columns that a result fills: itself, or its fields."""
    if stage.struct_fields[0] is None:
        return [values]
    places = [values.type.get_field_index(name) for name in stage.struct_fields]
    fields = values.flatten()
    return [fields[place].cast(field.type) for place, field in zip(places, stage.columns, strict=True)]
