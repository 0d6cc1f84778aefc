"""What a task does with its rows: plain functions over Lance fragments and Arrow batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Final

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import write_fragments

from tidemill.jobs.model.coverage import member_mask, row_set
from tidemill.jobs.model.derived import CHILD_INDEX, SOURCE_ROW_ID, quoted
from tidemill.jobs.model.plans import FragmentWork
from tidemill.jobs.model.stages import BatchPolicy, ColumnFile, FillColumn, ViewFragments, WriteViewRows
from tidemill.lance.changes import field_ids, files_of
from tidemill.lance.checkpoints import CheckpointValues, write_checkpoint
from tidemill.lance.column_files import ColumnFileWriter, describe_file, get_fragment, merged
from tidemill.spark.functions import Chunks, Column, FunctionRaised, RowIds
from tidemill.spark.scratch import TaskReport

SCAN_ROWS: Final = 65536
FASTEST_GROWTH: Final = 8.0
DEFAULT_ROWS_PER_FRAGMENT: Final = 1 << 20
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
    """Computes a column, in batches; puts results in safety every flush interval."""

    def __init__(self, stage: FillColumn, report: TaskReport) -> None:
        self._stage = stage
        self._report = report
        self._column = Column(stage.function, stage.column.type)
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
        arrays = [pa.array([], self._stage.column.type)]
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
    name = stage.column.name
    columns = [*stage.inputs] if work.rows is None else [*dict.fromkeys([*stage.inputs, name])]
    reused_before = filler.reused
    done: list[RowIds] = []
    with ColumnFileWriter(dataset, stage.location, fragment.physical_rows, stage.column) as writer:
        for batch in fragment.scanner(
            columns=columns, with_row_id=True, with_row_address=True, batch_size=SCAN_ROWS
        ).to_batches():
            row_ids = batch["_rowid"].to_numpy()
            inputs = batch.select(list(stage.inputs))
            if work.rows is None:
                values = filler.values(inputs, row_ids)
                done.append(row_ids)
            else:
                wanted = np.flatnonzero(member_mask(row_ids, work.rows))
                values = filler.values(inputs.take(pa.array(wanted)), row_ids[wanted])
                values = merged(batch[name], wanted, values)
                done.append(row_ids[wanted])
            writer.write((batch["_rowaddr"].to_numpy() & OFFSET_MASK).astype(np.int64), values)
    rows = row_set(np.sort(np.concatenate(done))) if done else row_set(np.empty(0, dtype=np.uint64))
    return ColumnFile(
        fragment_id=work.fragment_id,
        input_files=files_of(fragment, field_ids(dataset, stage.inputs)),
        path=writer.path,
        description=describe_file(dataset, writer.path),
        physical_rows=fragment.physical_rows,
        rows=rows,
        reused_rows=filler.reused - reused_before,
    )


class FailureKeeper:
    """Hands batches on and keeps what a function raised: Lance would tell it as a fault of its own."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.failure: FunctionRaised | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except FunctionRaised as raised:
            self.failure = raised
            raise


def write_view_fragments(
    stage: WriteViewRows, work: Sequence[FragmentWork], report: TaskReport
) -> list[ViewFragments]:
    """Evaluates the view for the rows and writes what comes out as new fragments of it."""
    batches = FailureKeeper(_view_batches(stage, work, report))
    try:
        written = write_fragments(
            pa.RecordBatchReader.from_batches(stage.output, batches),
            stage.view_location,
            mode="append",
            max_rows_per_file=stage.max_rows_per_fragment or DEFAULT_ROWS_PER_FRAGMENT,
        )
    except (OSError, ValueError) as error:
        if batches.failure is not None:
            raise batches.failure from error
        raise
    report.flush()
    rows = sum(fragment.physical_rows for fragment in written)
    return [ViewFragments(tuple(json.dumps(fragment.to_json()) for fragment in written), rows)]


def _view_batches(
    stage: WriteViewRows, work: Sequence[FragmentWork], report: TaskReport
) -> Iterator[pa.RecordBatch]:
    dataset = lance.dataset(stage.source_location, version=stage.source_version)
    chunks = None if stage.function is None else Chunks(stage.function)
    # Under names of their own: the view may call something else what its function reads.
    inputs = dict(zip(_input_names(stage), map(quoted, stage.inputs), strict=True))
    for fragment_work in work:
        scanner = get_fragment(dataset, fragment_work.fragment_id).scanner(
            columns={**inputs, **stage.columns},
            filter=stage.filter,
            with_row_id=True,
            batch_size=SCAN_ROWS if chunks is None else SCAN_ROWS // 16,
        )
        for batch in scanner.to_batches():
            if fragment_work.rows is not None:
                batch = batch.filter(pa.array(member_mask(batch["_rowid"].to_numpy(), fragment_work.rows)))
            yield _projected(stage, batch) if chunks is None else _chunked(stage, batch, chunks)
            report.rows_done(batch.num_rows)


def _input_names(stage: WriteViewRows) -> list[str]:
    return [f"__input_{number}" for number in range(len(stage.inputs))]


def _projected(stage: WriteViewRows, batch: pa.RecordBatch) -> pa.RecordBatch:
    source = batch["_rowid"].cast(pa.int64())
    columns = [source if field.name == SOURCE_ROW_ID else batch[field.name] for field in stage.output]
    return pa.record_batch(columns, schema=stage.output)


def _chunked(stage: WriteViewRows, batch: pa.RecordBatch, chunks: Chunks) -> pa.RecordBatch:
    row_ids = batch["_rowid"].to_numpy()
    children = chunks.compute(batch.select(_input_names(stage)), row_ids)
    made = dict(zip(stage.function.output.names if stage.function else (), children.columns, strict=True))
    parents = pa.array(children.parents)
    columns = []
    for field in stage.output:
        if field.name == SOURCE_ROW_ID:
            columns.append(pa.array(row_ids[children.parents].astype(np.int64)))
        elif field.name == CHILD_INDEX:
            columns.append(pa.array(children.indexes))
        elif field.name in made:
            columns.append(made[field.name])
        else:
            columns.append(batch[field.name].take(parents))
    return pa.record_batch(columns, schema=stage.output)
