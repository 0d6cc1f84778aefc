"""The task kernel that evaluates query and chunker views: plain functions over fragments and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.model.functions import FunctionKind
from tidemill.functions.api import CallSettings, ChunkFunction, Chunks, ColumnFunction
from tidemill.functions.isolation.pool import FunctionHost, Isolation
from tidemill.jobs.model.coverage import row_set
from tidemill.jobs.model.derived import CHILD_INDEX, IS_SET, SOURCE_ROW_ID
from tidemill.jobs.model.failures import RowFailure
from tidemill.jobs.model.plans import FragmentWork
from tidemill.jobs.model.stages import CallPolicy, OutputCap, WriteViewRows, WrittenRows
from tidemill.jobs.planning.output_limit import rows_fitting
from tidemill.lance.view_writer import ViewWriter
from tidemill.spark.reading import RowIds, input_columns
from tidemill.spark.task_reports import TaskReport
from tidemill.spark.view_reading import ViewSourceReader, prefix_of

NO_FAILURES: Final[tuple[RowFailure, ...]] = ()


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
