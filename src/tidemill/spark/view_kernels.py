"""What a task does to evaluate a view: plain functions over Lance fragments and Arrow batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final, TypeAlias

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import write_fragments

from tidemill.catalog.model.functions import FunctionKind
from tidemill.functions.chunks import ChunkFunction
from tidemill.functions.columns import CallSettings, ColumnFunction, FunctionRaised
from tidemill.functions.hosting import FunctionHost
from tidemill.functions.tables import yielded_batches
from tidemill.jobs.model.coverage import member_mask
from tidemill.jobs.model.derived import CHILD_INDEX, IS_SET, SOURCE_ROW_ID, path_of
from tidemill.jobs.model.plans import FragmentWork
from tidemill.jobs.model.stages import RunTableFunction, ViewFragments, WriteViewRows
from tidemill.lance.column_files import get_fragment
from tidemill.spark.reading import SCAN_ROWS, WHOLE_BLOBS, input_columns, scan_rows
from tidemill.spark.scratch import TaskReport
from tidemill.spark.table_source import TableSource

DEFAULT_ROWS_PER_FRAGMENT: Final = 1 << 20
ROWS_PER_CALL: Final = SCAN_ROWS // 16

Evaluator: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]


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
    stage: WriteViewRows, work: Sequence[FragmentWork], report: TaskReport, host: FunctionHost
) -> list[ViewFragments]:
    """Evaluates the view for the rows and writes what comes out as new fragments of it."""
    with ExitStack() as functions:
        evaluate = _evaluator(stage, CallSettings(host), functions)
        return [_write(stage, _view_batches(stage, work, report, evaluate), report)]


def write_table_fragments(
    stage: RunTableFunction, partitions: Sequence[str | None], report: TaskReport, host: FunctionHost
) -> list[ViewFragments]:
    """Calls the table function for each of the partitions and writes what it yields.

    It reads the table itself, so it is called here, whatever the host says.
    """
    return [_write(stage, _table_batches(stage, partition, report), report) for partition in partitions]


def _write(
    stage: WriteViewRows | RunTableFunction, made: Iterator[pa.RecordBatch], report: TaskReport
) -> ViewFragments:
    batches = FailureKeeper(made)
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
    return ViewFragments(tuple(json.dumps(fragment.to_json()) for fragment in written), rows)


def _view_batches(
    stage: WriteViewRows, work: Sequence[FragmentWork], report: TaskReport, evaluate: Evaluator
) -> Iterator[pa.RecordBatch]:
    dataset = lance.dataset(stage.source_location, version=stage.source_version)
    inputs = {
        name: expression
        for number, call in enumerate(stage.calls)
        for name, expression in input_columns(call, _prefix(number)).items()
    }
    for fragment_work in work:
        scanner = get_fragment(dataset, fragment_work.fragment_id).scanner(
            columns={**inputs, **stage.columns},
            filter=stage.filter,
            with_row_id=True,
            batch_size=min(scan_rows(dataset), ROWS_PER_CALL if stage.calls else SCAN_ROWS),
            blob_handling=WHOLE_BLOBS,
        )
        for batch in scanner.to_batches():
            if fragment_work.rows is not None:
                batch = batch.filter(pa.array(member_mask(batch["_rowid"].to_numpy(), fragment_work.rows)))
            yield evaluate(batch)
            report.rows_done(batch.num_rows)


def _evaluator(stage: WriteViewRows, settings: CallSettings, functions: ExitStack) -> Evaluator:
    if stage.calls and stage.calls[0].function.kind is FunctionKind.CHUNKER:
        chunks = functions.enter_context(ChunkFunction(stage.calls[0], settings))
        return lambda batch: _chunked(stage, batch, chunks)
    columns = [
        functions.enter_context(ColumnFunction(call, stage.output.field(call.name or "").type, settings))
        for call in stage.calls
    ]
    return lambda batch: _projected(stage, batch, columns)


def _prefix(number: int) -> str:
    return f"__call_{number}"


def _inputs(stage: WriteViewRows, batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    return batch.select(list(input_columns(stage.calls[number], _prefix(number))))


def _projected(
    stage: WriteViewRows, batch: pa.RecordBatch, columns: Sequence[ColumnFunction]
) -> pa.RecordBatch:
    row_ids = batch["_rowid"].to_numpy()
    found = {name: batch[name] for name in stage.columns}
    found |= {
        call.name or "": columns[number].compute(_inputs(stage, batch, number), row_ids).values
        for number, call in enumerate(stage.calls)
    }
    found |= {
        SOURCE_ROW_ID: batch["_rowid"].cast(pa.int64()),
        IS_SET: pa.array(np.ones(len(batch), dtype=np.bool_)),
    }
    return pa.record_batch([found[name] for name in stage.output.names], schema=stage.output)


def _chunked(stage: WriteViewRows, batch: pa.RecordBatch, chunks: ChunkFunction) -> pa.RecordBatch:
    row_ids = batch["_rowid"].to_numpy()
    children = chunks.compute(_inputs(stage, batch, 0), row_ids)
    parents = pa.array(children.parents)
    found = {
        **{name: batch[name].take(parents) for name in stage.columns},
        **dict(zip(stage.calls[0].function.output.names, children.columns, strict=True)),
        SOURCE_ROW_ID: pa.array(row_ids[children.parents].astype(np.int64)),
        CHILD_INDEX: pa.array(children.indexes),
    }
    return pa.record_batch([found[name] for name in stage.output.names], schema=stage.output)


def _table_batches(
    stage: RunTableFunction, partition: str | None, report: TaskReport
) -> Iterator[pa.RecordBatch]:
    dataset = lance.dataset(stage.source_location, version=stage.source_version)
    columns = {name: stage.columns.get(name, path_of(name)) for name in stage.call.inputs or stage.columns}
    conditions = [f"({text})" for text in (stage.filter, partition) if text is not None]
    source = TableSource(
        dataset=dataset,
        columns=columns,
        filter=" AND ".join(conditions) or None,
        limit_rows=stage.limit,
        offset_rows=stage.offset,
        seen=report.rows_done,
    )
    yield from yielded_batches(stage.call.function, source, stage.output)
