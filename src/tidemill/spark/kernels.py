"""Task kernels that fill computed columns: plain functions over Lance fragments and Arrow batches.

These run in Spark's Python workers but do not import Spark, so tests call them directly. For each fragment of
its share a task reads the input rows, takes values that an earlier attempt left in checkpoints, calls the
function for the rest and writes a column file. The driver later publishes all column files in one commit.

Three classes share the work:

- `BatchSizer` adapts the number of rows per call, so that a call takes about the target time.
- `CheckpointBuffer` holds computed values and writes them to a checkpoint once enough time was spent on them.
  Without it, a crash would lose all function calls of an unfinished fragment; writing every batch would cost
  more than many functions do.
- `RowComputer` combines both with the function and the values already known.

`compute_pieces` is the variant for large fragments that several tasks share: it only writes checkpoints, from
which a later task assembles the column file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import monotonic
from types import TracebackType
from typing import Final

import lance
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.functions.api import CallSettings, ColumnFunction, Computed
from tidemill.functions.isolation.pool import FunctionHost
from tidemill.jobs.model.columns import (
    BatchPolicy,
    ColumnFile,
    ComputedRows,
    FileMarks,
    FillColumn,
    input_expressions,
)
from tidemill.jobs.model.coverage import is_ascending, row_set
from tidemill.jobs.model.failures import ErrorAction, RowFailure
from tidemill.jobs.model.plans import FragmentWork
from tidemill.lance.changes import field_ids, files_of
from tidemill.lance.checkpoint_files import CheckpointValues, write_checkpoint, write_finished
from tidemill.lance.fingerprints import NO_HASH, Hashes, fingerprints, paired, write_segment
from tidemill.lance.fragments import ColumnFileWriter, deletions_of, describe_file, get_fragment, merged
from tidemill.lance.freshness import watched_fields
from tidemill.spark.reading import DENSE, FragmentReader, Inputs, Positions, ReadRows, RowIds
from tidemill.spark.task_reports import TaskReport

MAX_GROWTH: Final = 8.0
# Larger buffers are written or dropped, however little time their values took to compute.
MAX_UNSAVED_BYTES: Final = 128 << 20


class BatchSizer:
    """Grows or shrinks batches toward the target time per call."""

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self.rows = min(max(policy.initial_rows, policy.min_rows), policy.max_rows)

    def record_batch_time(self, rows: int, seconds: float) -> None:
        if rows < self.rows:
            return
        target = self._policy.target.total_seconds()
        factor = min(MAX_GROWTH, max(1 / MAX_GROWTH, target / max(seconds, 1e-6)))
        self.rows = min(max(int(self.rows * factor), self._policy.min_rows), self._policy.max_rows)


class CheckpointBuffer:
    """Checkpoints results once enough time was spent in the function that losing them would hurt."""

    def __init__(self, location: str, version: int, policy: BatchPolicy) -> None:
        self._location = location
        self._version = version
        self._policy = policy
        self._unsaved: list[tuple[RowIds, Computed, RowIds | None]] = []
        self._finished: list[ColumnFile] = []
        # Since the last flush, in total, and for the buffered values.
        self._seconds = 0.0
        self._total_seconds = 0.0
        self._unsaved_seconds = 0.0
        self._bytes = 0

    def add(self, row_ids: RowIds, computed: Computed, seconds: float, inputs: RowIds | None = None) -> None:
        """Adds results; `inputs` are fingerprints of what they were computed from, always or never."""
        self._unsaved.append((row_ids, computed, inputs))
        self._seconds += seconds
        self._total_seconds += seconds
        self._unsaved_seconds += seconds
        self._bytes += computed.values.nbytes
        if self._policy.is_due(self._seconds, self._total_seconds):
            self.flush()
        elif self._bytes >= MAX_UNSAVED_BYTES:
            self._flush_if_worthwhile()

    def add_finished(self, file: ColumnFile) -> None:
        """Records a complete column file; its values need no checkpoint."""
        self._finished.append(file)
        self._clear_unsaved()

    def flush(self) -> None:
        self._seconds = 0.0
        self._flush_if_worthwhile()
        if self._finished:
            write_finished(self._location, self._version, self._finished)
            self._finished.clear()

    def _flush_if_worthwhile(self) -> None:
        rows = sum(len(row_ids) for row_ids, _, _ in self._unsaved)
        if self._policy.is_worth_saving(self._unsaved_seconds, self._bytes, rows):
            self.flush_values()
        elif self._bytes >= MAX_UNSAVED_BYTES:
            self._clear_unsaved()

    def _clear_unsaved(self) -> None:
        self._unsaved.clear()
        self._unsaved_seconds = 0.0
        self._bytes = 0

    def flush_values(self) -> None:
        if not self._unsaved:
            return
        inputs = [hashes for _, _, hashes in self._unsaved if hashes is not None]
        write_checkpoint(
            self._location,
            self._version,
            np.concatenate([ids for ids, _, _ in self._unsaved]),
            pa.concat_arrays([computed.values for _, computed, _ in self._unsaved]),
            [failure for _, computed, _ in self._unsaved for failure in computed.failures],
            np.concatenate(inputs) if inputs else None,
        )
        self._clear_unsaved()


class RowComputer:
    """Computes values in batches and reuses those found in checkpoints."""

    def __init__(self, stage: FillColumn, report: TaskReport, host: FunctionHost) -> None:
        self._stage = stage
        self._report = report
        self._type = result_type(stage)
        settings = CallSettings(host, stage.on_error, stage.threads, stage.environment)
        self._function = ColumnFunction(stage.call, self._type, settings)
        is_skipping = stage.on_error.action is ErrorAction.SKIP
        self._known = CheckpointValues(stage.checkpoints, with_failures=is_skipping)
        self._sizer = BatchSizer(stage.batches)
        self.buffer = CheckpointBuffer(stage.checkpoint_location, stage.version, stage.batches)
        self.fingerprints: list[Hashes] = []
        self.reused = 0
        self.seconds = 0.0

    def __enter__(self) -> RowComputer:
        self._function.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._function.__exit__(kind, error, trace)

    def values(self, rows: ReadRows) -> Computed:
        """The values of the wanted rows, in order."""
        row_ids = rows.row_ids[rows.wanted]
        found = self._known.find(row_ids)
        if found.values is None or not len(found.positions):
            return self._computed(rows, rows.wanted)
        self.reused += len(found.positions)
        self._report.rows_done(len(found.positions))
        is_known = np.zeros(len(row_ids), dtype=np.bool_)
        is_known[found.positions] = True
        unknown = np.flatnonzero(~is_known)
        known = _as_function_result(found.values, self._type, self._stage)
        self._note(found.inputs, known)
        if not len(unknown) and is_ascending(found.positions):
            return Computed(known, found.failures)
        computed = self._computed(rows, rows.wanted[unknown])
        order = np.argsort(np.concatenate([unknown, found.positions]), kind="stable")
        values = pa.concat_arrays([computed.values, known])
        return Computed(values.take(pa.array(order)), (*computed.failures, *found.failures))

    def _computed(self, rows: ReadRows, positions: Positions) -> Computed:
        batches: list[Computed] = []
        if len(positions):
            inputs, row_ids = rows.inputs(positions), rows.row_ids[positions]
            start = 0
            while start < len(row_ids):
                count = min(self._sizer.rows, len(row_ids) - start)
                batches.append(self._call(_sliced(inputs, start, count), row_ids[start : start + count]))
                start += count
        failures = tuple(failure for computed in batches for failure in computed.failures)
        return Computed(_concatenated([computed.values for computed in batches], self._type), failures)

    def _call(self, inputs: Inputs, row_ids: RowIds) -> Computed:
        began_at = monotonic()
        computed = self._function.compute(inputs.columns, row_ids, inputs.blobs)
        seconds = monotonic() - began_at
        self.seconds += seconds
        self._sizer.record_batch_time(len(row_ids), seconds)
        given = None if self._stage.segment_location is None else fingerprints(inputs.columns.columns)
        self._note(given, computed.values)
        self.buffer.add(row_ids, computed, seconds, given)
        self._report.rows_done(len(row_ids))
        self._report.skipped(computed.failures)
        return computed

    def _note(self, inputs: Hashes | None, values: pa.Array) -> None:
        """Fingerprints of results, to be kept with the coverage."""
        if inputs is not None and self._stage.segment_location is not None:
            results = paired(inputs, fingerprints(_unpacked(self._stage, values)))
            is_kept = inputs != NO_HASH
            self.fingerprints.append(results if is_kept.all() else results[is_kept])

    def write_segment(self) -> str | None:
        location, hashes = self._stage.segment_location, _joined(self.fingerprints)
        return None if location is None or hashes is None else write_segment(location, hashes)


def fill_fragments(
    stage: FillColumn, work: Sequence[FragmentWork], report: TaskReport, host: FunctionHost
) -> list[ColumnFile]:
    """Writes a column file per fragment: computed values, and the existing ones for all other rows."""
    dataset = lance.dataset(stage.location, version=stage.version)
    with RowComputer(stage, report, host) as computer:
        files = []
        for item in work:
            files.append(_fill_fragment(dataset, stage, item, computer))
            computer.buffer.add_finished(files[-1])
        segment = computer.write_segment()
    report.flush()
    return [replace(file, segment=segment) for file in files]


def compute_pieces(
    stage: FillColumn, work: Sequence[FragmentWork], report: TaskReport, host: FunctionHost
) -> list[ComputedRows]:
    """Computes rows and checkpoints their values, for a column file that is written later."""
    dataset = lance.dataset(stage.location, version=stage.version)
    done: list[RowIds] = []
    failures: list[RowFailure] = []
    with RowComputer(stage, report, host) as computer:
        for item in work:
            reader = FragmentReader(dataset, stage, get_fragment(dataset, item.fragment_id))
            for rows in reader.read(item, has_values=False):
                computed = computer.values(rows)
                failures += computed.failures
                done.append(rows.row_ids[rows.wanted])
        computer.buffer.flush_values()
        result = ComputedRows(_all_rows(done), computer.reused, computer.seconds, tuple(failures))
    report.flush()
    return [result]


def _fill_fragment(
    dataset: lance.LanceDataset, stage: FillColumn, work: FragmentWork, computer: RowComputer
) -> ColumnFile:
    fragment = get_fragment(dataset, work.fragment_id)
    reused_before = computer.reused
    done: list[RowIds] = []
    failures: list[RowFailure] = []
    reader = FragmentReader(dataset, stage, fragment)
    with ColumnFileWriter(dataset, stage.location, fragment.physical_rows, stage.columns) as writer:
        for rows in reader.read(work, has_values=_is_mostly_known(stage)):
            computed = computer.values(rows)
            failures += computed.failures
            done.append(rows.row_ids[rows.wanted])
            writer.write(rows.offsets, _columns(stage, rows, computed.values))
    outputs = field_ids(dataset, stage.columns.names)
    watched = watched_fields(dataset, stage.call.inputs, stage.columns.names)
    return ColumnFile(
        fragment_id=work.fragment_id,
        input_files=files_of(fragment, field_ids(dataset, stage.call.inputs)),
        path=writer.path,
        description=describe_file(dataset, writer.path),
        physical_rows=fragment.physical_rows,
        rows=_all_rows(done),
        deletions=deletions_of(fragment),
        gaps=writer.gaps,
        carried_files=None if work.rows is None else files_of(fragment, outputs),
        reused_rows=computer.reused - reused_before,
        failures=tuple(failures),
        marks=FileMarks(watched.marks(fragment), watched.input_mark(fragment)),
        expressions=() if stage.segment_location is None else input_expressions(stage.call),
    )


def _is_mostly_known(stage: FillColumn) -> bool:
    known = sum(len(ref.rows) for ref in stage.checkpoints)
    return known > (1 - DENSE) * sum(item.row_count for task in stage.tasks for item in task)


def result_type(stage: FillColumn) -> pa.DataType:
    """The type the function must return: that of the column, or a struct with one field per column."""
    is_unpacked = stage.struct_fields[0] is not None
    return stage.call.function.value_type if is_unpacked else stage.columns.field(0).type


def _columns(stage: FillColumn, rows: ReadRows, values: pa.Array) -> list[pa.Array]:
    computed = _unpacked(stage, values)
    if rows.carried is None:
        return computed
    return [merged(old, rows.wanted, new) for old, new in zip(rows.carried.columns, computed, strict=True)]


def _unpacked(stage: FillColumn, values: pa.Array) -> list[pa.Array]:
    """The columns filled by a result: the result itself, or its fields."""
    if stage.struct_fields[0] is None:
        return [values]
    indices = [values.type.get_field_index(name) for name in stage.struct_fields]
    fields = values.flatten()
    return [_typed(fields[index], field.type) for index, field in zip(indices, stage.columns, strict=True)]


def _as_function_result(known: pa.Array, wanted: pa.DataType, stage: FillColumn) -> pa.Array:
    """Checkpointed values in the function's result type; column files use the columns' names instead."""
    if known.type.equals(wanted):
        return known
    if stage.struct_fields[0] is None:
        return known.cast(wanted)
    by_name = dict(zip(stage.struct_fields, known.flatten(), strict=True))
    fields = [
        _typed(by_name[field.name], field.type) if field.name in by_name else pa.nulls(len(known), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(fields, fields=list(wanted))


def _typed(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Casts only if needed: Arrow refuses null structs with non-nullable fields, even to the same type."""
    return values if values.type.equals(wanted) else values.cast(wanted)


def _joined(hashes: Sequence[Hashes]) -> Hashes | None:
    return np.concatenate(hashes) if hashes else None


def _sliced(inputs: Inputs, start: int, count: int) -> Inputs:
    blobs = {number: files[start : start + count] for number, files in inputs.blobs.items()}
    return Inputs(inputs.columns.slice(start, count), blobs)


def _concatenated(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """Avoids the copy in the common case of a single array."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays([pa.nulls(0, kind), *arrays])


def _all_rows(done: Sequence[RowIds]) -> BitMap64:
    return row_set(np.concatenate(done)) if done else BitMap64()
