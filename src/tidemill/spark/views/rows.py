"""The task kernel that evaluates query and chunker views: plain functions over fragments and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.model.functions import FunctionEncoding, FunctionKind
from tidemill.functions.api import CallSettings, ChunkFunction, ColumnFunction
from tidemill.functions.isolation.pool import FunctionHost
from tidemill.jobs.model.coverage import member_mask, row_set
from tidemill.jobs.model.failures import ErrorAction, RowFailure
from tidemill.jobs.model.plans import FragmentWork
from tidemill.jobs.model.views import (
    CHILD_INDEX,
    IS_SET,
    SOURCE_ROW_ID,
    CallPolicy,
    GoneRows,
    OutputCap,
    WriteViewRows,
    WrittenRows,
)
from tidemill.jobs.planning.refresh import rows_fitting
from tidemill.lance.changes import check_gone
from tidemill.lance.fragments import get_fragment
from tidemill.lance.view_writer import HeldRows, ViewWriter
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
from tidemill.spark.views.gone_results import GoneResults, HeldValues
from tidemill.spark.views.results import (
    ChunkLists,
    ResultComputer,
    RowFunction,
    held_chunks,
    held_values,
    list_type,
)

ROWS_PER_CALL: Final = SCAN_ROWS // 16
# A capped view may need few rows, so the first batch is small, and later ones grow slowly.
FIRST_BATCH_ROWS: Final = 8
BATCH_GROWTH: Final = 4
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

    @property
    def most_rows(self) -> int:
        """How many rows are read at a time at most."""
        return self._rows

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
            yield self.take(row_ids[start : start + size])

    def take(self, row_ids: RowIds) -> pa.RecordBatch:
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
    """Evaluated rows of a view and the failures; source rows in `skipped` produced no rows.

    `held` is what the view has of them, if it was looked at. For `reused` source rows nothing was called.
    """

    rows: pa.RecordBatch
    failures: tuple[RowFailure, ...] = NO_FAILURES
    skipped: frozenset[int] = frozenset()
    held: HeldRows | None = None
    reused: int = 0


def call_settings(policy: CallPolicy, host: FunctionHost) -> CallSettings:
    """A function suspected of having killed a task runs in its own process, to find the row at fault."""
    task_host = host.with_processes() if policy.is_suspect else host
    return CallSettings(task_host, policy.on_error, policy.threads, policy.environment)


def write_view_fragments(
    stage: WriteViewRows, work: Sequence[FragmentWork], report: TaskReport, host: FunctionHost
) -> list[WrittenRows]:
    """Evaluates the view for the given source rows and writes the results as new fragments."""
    with ExitStack() as stack:
        computers = _open_functions(stage, call_settings(stage.policy, host), stack)
        writer = stack.enter_context(ViewWriter(stage.target, _rows_of(work, stage.gone)))
        task = _Task(stage, computers, writer, report)
        source = ViewSourceReader(stage)
        if stage.cap is not None:
            return [_CappedTask(stage.cap, source, task).run(work)]
        for batch in source.batches(work):
            task.put(task.evaluate(batch), len(batch))
        return [task.finish()]


def _rows_of(work: Sequence[FragmentWork], gone: GoneRows | None) -> BitMap64 | None:
    """The source rows that results are looked up for, or None if whole fragments are read."""
    listed = BitMap64() if gone is None else gone.rows.copy()
    for item in work:
        if item.rows is None:
            return None
        listed |= item.rows
    return listed


class _Task:
    """Evaluates batches of source rows and collects the rows, failures and fingerprints of one task."""

    def __init__(
        self,
        stage: WriteViewRows,
        computers: Sequence[ResultComputer],
        writer: ViewWriter,
        report: TaskReport,
    ) -> None:
        self._stage = stage
        self._computers = computers
        self._gone = [_gone_results(stage, number, each, writer) for number, each in enumerate(computers)]
        self._report = report
        self._writer = writer
        self._failures: list[RowFailure] = []
        self._skipped = BitMap64()
        self._reused = 0

    def evaluate(self, batch: pa.RecordBatch) -> EvaluatedRows:
        held: HeldRows | None = None
        if any(computer.looks_at_view for computer in self._computers):
            held = self._writer.find(batch[ROW_ID].to_numpy().view(np.int64))
        evaluate = _chunked if _is_chunker(self._stage) else _projected
        return replace(evaluate(self._stage, batch, self._computers, self._gone, held), held=held)

    def put(self, evaluated: EvaluatedRows, source_rows: int) -> None:
        self._writer.put(evaluated.rows, evaluated.held)
        self._failures += evaluated.failures
        self._skipped.update(evaluated.skipped)
        self._reused += evaluated.reused
        self._report.skipped(evaluated.failures)
        self._report.rows_done(source_rows)

    def finish(self) -> WrittenRows:
        # First of all what would cost the most to make again.
        for computer in self._computers:
            computer.save()
        written = self._writer.finish()
        self._report.flush()
        segments = [(number, each.write_segment()) for number, each in enumerate(self._computers)]
        return replace(
            written,
            skipped=self._skipped,
            failures=tuple(self._failures),
            reused=self._reused,
            segments=tuple((number, path) for number, path in segments if path is not None),
        )


class _CappedTask:
    """Evaluates source rows in the order of their ids until the view's row limit is reached.

    How many rows a source row yields is not known before the function was called for it. Each batch has as
    many source rows as seem to be missing, given what came of those before, so that few are evaluated in
    vain.
    """

    def __init__(self, cap: OutputCap, source: ViewSourceReader, task: _Task) -> None:
        self._cap = cap
        self._source = source
        self._task = task
        self._ids = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.int64)
        self._evaluated = 0

    def run(self, work: Sequence[FragmentWork]) -> WrittenRows:
        ids = [np.array(item.rows.to_array(), dtype=np.uint64) for item in work if item.rows is not None]
        ordered = np.sort(np.concatenate([np.empty(0, np.uint64), *ids]))
        made: tuple[RowIds, npt.NDArray[np.int64]] | None = None
        while self._evaluated < len(ordered) and made is None:
            left = ordered[self._evaluated :]
            missing = int(self._shown(left[:1], np.array([self._cap.limit]))[0])
            if not missing:
                break
            made = self._put(left[: self._batch_size(missing)])
        written = replace(self._task.finish(), covered=row_set(self._ids), evaluated=self._evaluated)
        if made is None:
            return replace(written, made=(self._ids, self._counts))
        (partial,), (shown,) = made
        all_made = np.append(self._ids, partial), np.append(self._counts, shown)
        return replace(written, cut=int(partial) if shown else None, made=all_made)

    def _batch_size(self, missing: int) -> int:
        """At first, each source row is taken to yield one row."""
        if not self._evaluated:
            return min(missing, FIRST_BATCH_ROWS, self._source.most_rows)
        per_row = int(self._counts.sum()) / self._evaluated
        wanted = ceil(missing / per_row) if per_row else self._evaluated
        return min(wanted, BATCH_GROWTH * self._evaluated, self._source.most_rows)

    def _put(self, ids: RowIds) -> tuple[RowIds, npt.NDArray[np.int64]] | None:
        """Returns the source row that fits only in part, if there is one, and how many of its rows fit."""
        evaluated = self._task.evaluate(self._source.take(ids))
        self._evaluated += len(ids)
        sources = evaluated.rows.column(SOURCE_ROW_ID).to_numpy().view(np.uint64)
        order = np.lexsort((evaluated.rows.column(CHILD_INDEX).to_numpy(), sources))
        ordered = sources[order]
        counts = np.searchsorted(ordered, ids, side="right") - np.searchsorted(ordered, ids, side="left")
        shown = self._shown(ids, counts)
        # A source row that only fits partly ends the view, so that the view holds the first rows overall.
        overflowing = np.flatnonzero(shown < counts)
        end = int(overflowing[0]) if len(overflowing) else len(ids)
        rows = int(shown[: end + 1].sum())
        self._task.put(replace(evaluated, rows=evaluated.rows.take(pa.array(order[:rows]))), len(ids))
        self._ids = np.concatenate([self._ids, ids[:end]])
        self._counts = np.concatenate([self._counts, counts[:end]])
        return (ids[end : end + 1], shown[end : end + 1]) if len(overflowing) else None

    def _shown(self, ids: RowIds, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return rows_fitting(self._cap, ids, counts, int(self._counts.sum()))


def _is_chunker(stage: WriteViewRows) -> bool:
    return bool(stage.calls) and stage.calls[0].function.kind is FunctionKind.CHUNKER


def _open_functions(
    stage: WriteViewRows, settings: CallSettings, stack: ExitStack
) -> tuple[ResultComputer, ...]:
    return tuple(
        stack.enter_context(_computer(stage, number, settings, stack)) for number in range(len(stage.calls))
    )


def _computer(stage: WriteViewRows, number: int, settings: CallSettings, stack: ExitStack) -> ResultComputer:
    call, function = stage.calls[number], stage.calls[number].function
    opened: RowFunction
    if function.kind is FunctionKind.CHUNKER:
        value_type = list_type(function.output)
        opened = ChunkLists(stack.enter_context(ChunkFunction(call, settings)), function.output)
    else:
        value_type = stage.target.output.field(call.name or "").type
        opened = stack.enter_context(ColumnFunction(call, value_type, settings))
    # The scan has evaluated an expression already, at no cost worth saving.
    kept = stage.kept[number] if stage.kept and not function.is_expression else None
    return ResultComputer(
        opened,
        value_type,
        kept,
        stage.source_version,
        stage.batches,
        with_failures=stage.policy.on_error.action is ErrorAction.SKIP,
        # A chunker that is called with arrays gets the ids as well.
        takes_row_ids=function.kind is FunctionKind.CHUNKER,
    )


def _gone_results(
    stage: WriteViewRows, number: int, computer: ResultComputer, writer: ViewWriter
) -> GoneResults | None:
    """A function that may be given the ids of rows has no results for rows with other ids."""
    gone, call = stage.gone, stage.calls[number]
    is_chunker = call.function.kind is FunctionKind.CHUNKER
    has_ids = is_chunker and call.function.encoding is not FunctionEncoding.TIDEMILL
    if gone is None or has_ids or not computer.looks_at_view:
        return None

    def held(row_ids: RowIds) -> HeldValues:
        rows = writer.find(row_ids.view(np.int64))
        if is_chunker:
            return held_chunks(rows, row_ids, call.function.output)
        nothing = pa.nulls(len(row_ids), stage.target.output.field(call.name or "").type)
        values = held_values(rows, row_ids, call.name or "")
        return values or HeldValues(nothing, np.zeros(len(row_ids), np.bool_))

    return GoneResults(lambda: _gone_inputs(stage, gone, number), held, computer.are_right)


def _gone_inputs(
    stage: WriteViewRows, gone: GoneRows, number: int
) -> Iterator[tuple[pa.RecordBatch, RowIds]]:
    """What the function was given for rows that are gone; nothing if that version is gone as well."""
    columns = input_columns(stage.calls[number], prefix_of(number))
    ids = np.array(gone.rows.to_array(), dtype=np.uint64)
    try:
        dataset = lance.dataset(stage.source_location, version=gone.version)
        for start in range(0, len(ids), ROWS_PER_CALL):
            wanted = ids[start : start + ROWS_PER_CALL]
            expressions = {**columns, ROW_ID: ROW_ID}
            rows = dataset._take_rows(wanted, columns=expressions, blob_handling=WHOLE_BLOBS)
            for batch in rows.combine_chunks().to_batches():
                yield batch.select(list(columns)), batch[ROW_ID].to_numpy()
    except (OSError, ValueError) as error:
        check_gone(error)


def _inputs(stage: WriteViewRows, batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    return batch.select(list(input_columns(stage.calls[number], prefix_of(number))))


def _projected(
    stage: WriteViewRows,
    batch: pa.RecordBatch,
    computers: Sequence[ResultComputer],
    gone: Sequence[GoneResults | None],
    held: HeldRows | None,
) -> EvaluatedRows:
    row_ids, output = batch[ROW_ID].to_numpy(), stage.target.output
    columns_by_name = {name: batch[name] for name in stage.columns}
    failures: list[RowFailure] = []
    is_called = np.zeros(len(batch), dtype=np.bool_)
    for number, computer in enumerate(computers):
        name = stage.calls[number].name or ""
        known = held_values(held, row_ids, name) if computer.looks_at_view else None
        results = computer.results(_inputs(stage, batch, number), row_ids, known, gone[number])
        columns_by_name[name] = results.values
        failures += results.failures
        if computer.is_keeping:
            is_called |= results.is_called
    columns_by_name |= {
        SOURCE_ROW_ID: batch[ROW_ID].cast(pa.int64()),
        IS_SET: pa.array(np.ones(len(batch), dtype=np.bool_)),
    }
    rows = pa.record_batch([columns_by_name[name] for name in output.names], schema=output)
    reused = np.count_nonzero(~is_called) if any(each.is_keeping for each in computers) else 0
    return EvaluatedRows(rows, tuple(failures), reused=int(reused))


def _chunked(
    stage: WriteViewRows,
    batch: pa.RecordBatch,
    computers: Sequence[ResultComputer],
    gone: Sequence[GoneResults | None],
    held: HeldRows | None,
) -> EvaluatedRows:
    row_ids, output = batch[ROW_ID].to_numpy(), stage.target.output
    chunk_schema, [computer] = stage.calls[0].function.output, computers
    known = held_chunks(held, row_ids, chunk_schema) if computer.looks_at_view else None
    results = computer.results(_inputs(stage, batch, 0), row_ids, known, gone[0])
    counts = results.values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    parents = np.repeat(np.arange(len(batch)), counts)
    starts = np.cumsum(counts) - counts
    indexes = (np.arange(len(parents)) - starts[parents]).astype(np.int32)
    columns_by_name = {
        **{name: batch[name].take(pa.array(parents)) for name in stage.columns},
        **dict(zip(chunk_schema.names, results.values.flatten().flatten(), strict=True)),
        SOURCE_ROW_ID: pa.array(row_ids[parents].astype(np.int64)),
        CHILD_INDEX: pa.array(indexes),
    }
    rows = pa.record_batch([columns_by_name[name] for name in output.names], schema=output)
    skipped = frozenset(failure.row_id for failure in results.failures if failure.row_id is not None)
    reused = np.count_nonzero(~results.is_called) if computer.is_keeping else 0
    return EvaluatedRows(rows, results.failures, skipped, reused=int(reused))
