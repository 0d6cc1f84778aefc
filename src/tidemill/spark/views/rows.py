"""The task kernel that evaluates query and chunker views: plain functions over fragments and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import lance
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.model.functions import FunctionKind
from tidemill.functions.api import CallSettings, ChunkFunction, Chunks, ColumnFunction
from tidemill.functions.isolation.pool import FunctionHost, Isolation
from tidemill.jobs.model.coverage import member_mask, row_set
from tidemill.jobs.model.failures import RowFailure
from tidemill.jobs.model.plans import FragmentWork
from tidemill.jobs.model.views import (
    CHILD_INDEX,
    IS_SET,
    SOURCE_ROW_ID,
    CallPolicy,
    OutputCap,
    WriteViewRows,
    WrittenRows,
)
from tidemill.jobs.planning.refresh import rows_fitting
from tidemill.lance.fragments import get_fragment
from tidemill.lance.view_writer import ViewWriter
from tidemill.spark.reading import (
    DENSE,
    MATCHES,
    ROW_ID,
    SCAN_ROWS,
    WHOLE_BLOBS,
    RowIds,
    input_columns,
    scan_rows,
)
from tidemill.spark.task_reports import TaskReport

ROWS_PER_CALL: Final = SCAN_ROWS // 16
# A capped view may need few rows, so the first batch is small.
FIRST_BATCH_ROWS: Final = 64
NO_FAILURES: Final[tuple[RowFailure, ...]] = ()


def prefix_of(number: int) -> str:
    """The name prefix for the inputs of one of a view's functions."""
    return f"__call_{number}"


class ViewSourceReader:
    """Reads the inputs of a view's columns and functions, for rows that match its filter."""

    def __init__(self, stage: WriteViewRows) -> None:
        self._stage = stage
        self._dataset = lance.dataset(stage.source_location, version=stage.source_version)
        inputs = {
            name: expression
            for number, call in enumerate(stage.calls)
            for name, expression in input_columns(call, prefix_of(number)).items()
        }
        self._columns = {**inputs, **stage.columns}
        self._rows = min(scan_rows(self._dataset), ROWS_PER_CALL if stage.calls else SCAN_ROWS)

    def batches(self, work: Sequence[FragmentWork]) -> Iterator[pa.RecordBatch]:
        for item in work:
            fragment = get_fragment(self._dataset, item.fragment_id)
            live = fragment.physical_rows - fragment.num_deletions
            if item.rows is not None and item.row_count < DENSE * max(live, 1):
                yield from self._take_batches(np.array(item.rows.to_array(), dtype=np.uint64), self._rows)
            else:
                yield from self._scan(fragment, item)

    def in_order(self, work: Sequence[FragmentWork]) -> Iterator[tuple[RowIds, pa.RecordBatch]]:
        """Row ids in ascending order, few at first, each time with the rows that match the filter."""
        ids = [np.array(item.rows.to_array(), dtype=np.uint64) for item in work if item.rows is not None]
        ordered = np.sort(np.concatenate([np.empty(0, np.uint64), *ids]))
        start, size = 0, min(FIRST_BATCH_ROWS, self._rows)
        while start < len(ordered):
            part = ordered[start : start + size]
            yield part, self._take(part)
            start, size = start + size, self._rows

    def _scan(self, fragment: lance.LanceFragment, item: FragmentWork) -> Iterator[pa.RecordBatch]:
        scanner = fragment.scanner(
            columns=self._columns,
            filter=self._stage.filter,
            with_row_id=True,
            batch_size=self._rows,
            blob_handling=WHOLE_BLOBS,
        )
        for batch in scanner.to_batches():
            if item.rows is None:
                yield batch
            else:
                yield batch.filter(pa.array(member_mask(batch[ROW_ID].to_numpy(), item.rows)))

    def _take_batches(self, row_ids: RowIds, size: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(row_ids), size):
            yield self._take(row_ids[start : start + size])

    def _take(self, row_ids: RowIds) -> pa.RecordBatch:
        """Takes single rows, which is faster than a scan if they are few."""
        expressions = {**self._columns, ROW_ID: ROW_ID}
        if self._stage.filter is not None:
            expressions[MATCHES] = self._stage.filter
        table = self._dataset._take_rows(row_ids, columns=expressions, blob_handling=WHOLE_BLOBS)
        if self._stage.filter is not None:
            table = table.filter(table[MATCHES]).drop_columns([MATCHES])
        columns = [pa.concat_arrays([pa.array([], c.type), *c.chunks]) for c in table.columns]
        return pa.record_batch(columns, names=table.schema.names)


@dataclass(frozen=True)
class EvaluatedRows:
    """Evaluated rows of a view and the failures; source rows in `skipped` produced no rows."""

    rows: pa.RecordBatch
    failures: tuple[RowFailure, ...] = NO_FAILURES
    skipped: frozenset[int] = frozenset()


Evaluator: TypeAlias = Callable[[pa.RecordBatch], EvaluatedRows]


def call_settings(policy: CallPolicy, host: FunctionHost) -> CallSettings:
    """A function suspected of having killed a task runs in its own process, to find the row at fault."""
    task_host = replace(host, isolation=Isolation.PROCESS) if policy.is_suspect else host
    return CallSettings(task_host, policy.on_error, policy.threads, policy.environment)


def write_view_fragments(
    stage: WriteViewRows, work: Sequence[FragmentWork], report: TaskReport, host: FunctionHost
) -> list[WrittenRows]:
    """Evaluates the view for the given source rows and writes the results as new fragments."""
    with ExitStack() as stack:
        evaluate = _evaluator(stage, call_settings(stage.policy, host), stack)
        writer = stack.enter_context(ViewWriter(stage.target, _rows_of(work)))
        task = _Task(report, writer)
        source = ViewSourceReader(stage)
        if stage.cap is not None:
            return [_write_capped(stage.cap, source.in_order(work), evaluate, task)]
        for batch in source.batches(work):
            task.put(evaluate(batch), len(batch))
        return [task.finish()]


def _rows_of(work: Sequence[FragmentWork]) -> BitMap64 | None:
    """The source rows, or None if whole fragments are read."""
    listed = BitMap64()
    for item in work:
        if item.rows is None:
            return None
        listed |= item.rows
    return listed


class _Task:
    """Collects the rows and failures of one task."""

    def __init__(self, report: TaskReport, writer: ViewWriter) -> None:
        self._report = report
        self._writer = writer
        self._failures: list[RowFailure] = []
        self._skipped = BitMap64()

    def put(self, evaluated: EvaluatedRows, source_rows: int) -> None:
        self._writer.put(evaluated.rows)
        self._failures += evaluated.failures
        self._skipped.update(evaluated.skipped)
        self._report.skipped(evaluated.failures)
        self._report.rows_done(source_rows)

    def finish(self) -> WrittenRows:
        written = self._writer.finish()
        self._report.flush()
        return replace(written, skipped=self._skipped, failures=tuple(self._failures))


def _write_capped(
    cap: OutputCap,
    slices: Iterator[tuple[RowIds, pa.RecordBatch]],
    evaluate: Evaluator,
    task: _Task,
) -> WrittenRows:
    """Evaluates source rows in the order of their ids until the view's row limit is reached."""
    all_ids, all_counts = np.empty(0, np.uint64), np.empty(0, np.int64)
    cut: int | None = None
    for ids, batch in slices:
        evaluated = evaluate(batch)
        sources = evaluated.rows.column(SOURCE_ROW_ID).to_numpy().view(np.uint64)
        order = np.lexsort((evaluated.rows.column(CHILD_INDEX).to_numpy(), sources))
        ordered = sources[order]
        counts = np.searchsorted(ordered, ids, side="right") - np.searchsorted(ordered, ids, side="left")
        shown = rows_fitting(cap, ids, counts, int(all_counts.sum()))
        # A source row that only fits partly ends the view, so that the view holds the first rows overall.
        overflowing = np.flatnonzero(shown < counts)
        end = int(overflowing[0]) if len(overflowing) else len(ids)
        rows = int(shown[: end + 1].sum())
        task.put(replace(evaluated, rows=evaluated.rows.take(pa.array(order[:rows]))), len(ids))
        all_ids = np.concatenate([all_ids, ids[:end]])
        all_counts = np.concatenate([all_counts, counts[:end]])
        if len(overflowing):
            cut = int(ids[end]) if shown[end] else None
            partial = (ids[end : end + 1], shown[end : end + 1])
            counts_by_row = np.concatenate([all_ids, partial[0]]), np.concatenate([all_counts, partial[1]])
            return replace(task.finish(), covered=row_set(all_ids), cut=cut, made=counts_by_row)
    return replace(task.finish(), covered=row_set(all_ids), cut=None, made=(all_ids, all_counts))


def _evaluator(stage: WriteViewRows, settings: CallSettings, stack: ExitStack) -> Evaluator:
    if stage.calls and stage.calls[0].function.kind is FunctionKind.CHUNKER:
        chunks = stack.enter_context(ChunkFunction(stage.calls[0], settings))
        return lambda batch: _chunked(stage, batch, chunks)
    output = stage.target.output
    columns = [
        stack.enter_context(ColumnFunction(call, output.field(call.name or "").type, settings))
        for call in stage.calls
    ]
    return lambda batch: _projected(stage, batch, columns)


def _inputs(stage: WriteViewRows, batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    return batch.select(list(input_columns(stage.calls[number], prefix_of(number))))


def _projected(
    stage: WriteViewRows, batch: pa.RecordBatch, columns: Sequence[ColumnFunction]
) -> EvaluatedRows:
    row_ids, output = batch["_rowid"].to_numpy(), stage.target.output
    columns_by_name = {name: batch[name] for name in stage.columns}
    failures: list[RowFailure] = []
    for number, call in enumerate(stage.calls):
        computed = columns[number].compute(_inputs(stage, batch, number), row_ids)
        columns_by_name[call.name or ""] = computed.values
        failures += computed.failures
    columns_by_name |= {
        SOURCE_ROW_ID: batch["_rowid"].cast(pa.int64()),
        IS_SET: pa.array(np.ones(len(batch), dtype=np.bool_)),
    }
    rows = pa.record_batch([columns_by_name[name] for name in output.names], schema=output)
    return EvaluatedRows(rows, tuple(failures))


def _chunked(stage: WriteViewRows, batch: pa.RecordBatch, chunks: ChunkFunction) -> EvaluatedRows:
    row_ids, output = batch["_rowid"].to_numpy(), stage.target.output
    children: Chunks = chunks.compute(_inputs(stage, batch, 0), row_ids)
    parents = pa.array(children.parents)
    columns_by_name = {
        **{name: batch[name].take(parents) for name in stage.columns},
        **dict(zip(stage.calls[0].function.output.names, children.columns, strict=True)),
        SOURCE_ROW_ID: pa.array(row_ids[children.parents].astype(np.int64)),
        CHILD_INDEX: pa.array(children.indexes),
    }
    rows = pa.record_batch([columns_by_name[name] for name in output.names], schema=output)
    skipped = frozenset(failure.row_id for failure in children.failures if failure.row_id is not None)
    return EvaluatedRows(rows, children.failures, skipped)
