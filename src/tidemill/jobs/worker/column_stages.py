"""What a request says about filling a column, as a stage for an executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa

from tidemill.catalog.model.environments import Environment
from tidemill.jobs.model.jobs import BackfillRequest, PreviewRequest
from tidemill.jobs.model.stages import BatchPolicy, FillColumn, FunctionCall
from tidemill.jobs.planning.assess import DeclaredColumn
from tidemill.jobs.worker.running import RunningJob


def fill_stage(
    running: RunningJob,
    declared: DeclaredColumn,
    request: BackfillRequest | PreviewRequest,
    version: int,
    columns: Sequence[pa.Field],
) -> FillColumn:
    """A stage without tasks: those, and where checkpoints are, are the caller's to say."""
    column = declared.column
    stage = FillColumn(
        job_id=running.job.job_id,
        location=declared.table.data_location,
        version=version,
        columns=pa.schema(list(columns)),
        struct_fields=tuple(output.struct_field for output in column.outputs),
        call=FunctionCall(declared.function, column.inputs),
        tasks=(),
        checkpoint_location="",
        environment=request.environment or Environment(),
    )
    if isinstance(request, PreviewRequest):
        return stage
    return replace(
        stage,
        parallelism=request.concurrency,
        threads=request.intra_applier_concurrency or 1,
        batches=batch_policy(request),
        on_error=request.on_error,
    )


def batch_policy(request: BackfillRequest) -> BatchPolicy:
    default = BatchPolicy()
    low = request.min_checkpoint_size or default.min_rows
    high = request.max_checkpoint_size or max(default.max_rows, low)
    initial = request.checkpoint_size or default.initial_rows
    flush = request.flush_interval_seconds
    return BatchPolicy(
        initial_rows=min(max(initial, low), high),
        min_rows=low,
        max_rows=high,
        target=default.target,
        flush_interval=None if flush is None else timedelta(seconds=flush),
    )
