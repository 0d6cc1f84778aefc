"""The task kernel that calls a table function, once per partition of a view's source."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import lance
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.functions.api import FunctionRaised
from tidemill.functions.calling.tables import yielded_batches
from tidemill.functions.environments import activated, missing_packages
from tidemill.functions.failures import describe
from tidemill.functions.isolation.pool import FunctionHost
from tidemill.jobs.model.derived import KEY, path_of
from tidemill.jobs.model.failures import ErrorAction, RowFailure
from tidemill.jobs.model.stages import Partition, RunTableFunction, WrittenRows
from tidemill.lance.view_writer import ViewWriter
from tidemill.spark.table_source import TableSource
from tidemill.spark.task_reports import TaskReport


def write_table_fragments(
    stage: RunTableFunction, partitions: Sequence[Partition], report: TaskReport, host: FunctionHost
) -> list[WrittenRows]:
    """Calls the table function for each partition and writes the rows it yields.

    The function reads the table itself, so it always runs in the task's process, whatever isolation is set.
    """
    failures: list[RowFailure] = []
    skipped = BitMap64()
    environment = stage.policy.environment
    if not environment.packages:
        packages = missing_packages(stage.call.function.requirements)
        environment = replace(environment, packages=packages)
    with activated(environment, host.environments_root), ViewWriter(stage.target) as writer:
        for partition in partitions:
            failure = _write_partition(stage, partition, report, writer)
            if failure is not None:
                failures.append(failure)
                skipped.add(partition.key % (1 << 64))
        written = writer.finish()
    report.skipped(failures)
    report.flush()
    return [replace(written, skipped=skipped, failures=tuple(failures))]


def _write_partition(
    stage: RunTableFunction, partition: Partition, report: TaskReport, writer: ViewWriter
) -> RowFailure | None:
    """Writes one partition; returns the final failure if the policy allows skipping the partition."""
    policy = stage.policy.on_error
    key = None if stage.target.key is None else partition.key
    if policy.action is ErrorAction.FAIL and policy.attempts == 1:
        writer.put_stream(key, _call_function(stage, partition, report))
        return None
    for attempt in range(1, policy.attempts + 1):
        try:
            # Collected first, because the function may still fail after yielding rows.
            rows: Iterable[pa.RecordBatch] = list(_call_function(stage, partition, report))
        except FunctionRaised as raised:
            failure = _on_partition(raised.failure, partition, attempt)
            is_retryable = not policy.retry_on or _is_one_of(raised, policy.retry_on)
            if attempt < policy.attempts and is_retryable:
                time.sleep(policy.backoff_seconds * 2 ** (attempt - 1))
                continue
            if policy.action is ErrorAction.FAIL:
                raise FunctionRaised(failure) from raised
            return failure
        writer.put_stream(key, rows)
        return None
    raise AssertionError("a partition is tried at least once")


def _is_one_of(raised: FunctionRaised, wanted: tuple[str, ...]) -> bool:
    """Also matches base classes of the exception."""
    return raised.__cause__ is not None and describe(raised.__cause__).is_one_of(wanted)


def _on_partition(failure: RowFailure, partition: Partition, attempts: int) -> RowFailure:
    message = f"{partition.name}: {failure.message}"
    return replace(failure, row_id=partition.key % (1 << 64), message=message, attempts=attempts)


def _call_function(
    stage: RunTableFunction, partition: Partition, report: TaskReport
) -> Iterator[pa.RecordBatch]:
    output = stage.target.output
    schema = output if stage.target.key is None else pa.schema([f for f in output if f.name != KEY])
    dataset = lance.dataset(stage.source_location, version=stage.source_version)
    columns = {name: stage.columns.get(name, path_of(name)) for name in stage.call.inputs or stage.columns}
    source = TableSource(
        dataset=dataset,
        columns=columns,
        filter=stage.filter,
        limit_rows=stage.limit,
        offset_rows=stage.offset,
        on_rows=report.rows_done,
        rows=partition.rows,
    )
    for batch in yielded_batches(stage.call.function, source, schema):
        yield batch if stage.target.key is None else _with_key(batch, partition.key, output)


def _with_key(batch: pa.RecordBatch, key: int, output: pa.Schema) -> pa.RecordBatch:
    keys = pa.repeat(pa.scalar(key, pa.int64()), len(batch))
    return pa.record_batch(
        [keys if field.name == KEY else batch.column(field.name) for field in output], schema=output
    )
