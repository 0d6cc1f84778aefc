"""The task kernel that calls a table function, once per partition of a view's source."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.functions.api import FunctionRaised
from tidemill.functions.calling.in_process import yielded_batches
from tidemill.functions.environments import activated, missing_packages
from tidemill.functions.failures import describe
from tidemill.functions.isolation.pool import FunctionHost
from tidemill.jobs.model.columns import path_of
from tidemill.jobs.model.failures import ErrorAction, RowFailure
from tidemill.jobs.model.views import KEY, Partition, RunTableFunction, WrittenRows
from tidemill.lance.view_writer import ViewWriter
from tidemill.spark.reading import MATCHES, ROW_ID, WHOLE_BLOBS, RowIds
from tidemill.spark.task_reports import TaskReport

if TYPE_CHECKING:
    import pandas as pd


BATCH_ROWS: Final = 8192


@dataclass(frozen=True)
class TableSource:
    """Has the reading methods of a lancedb query builder; each call reads the data again.

    Methods that refine the query return a new source. `rows` restricts the source to those row ids.
    """

    dataset: lance.LanceDataset
    columns: Mapping[str, str]
    filter: str | None
    limit_rows: int | None
    offset_rows: int | None
    on_rows: Callable[[int], None]
    has_row_id: bool = False
    rows: BitMap64 | None = None

    def select(self, columns: Sequence[str] | Mapping[str, str]) -> TableSource:
        if isinstance(columns, Mapping):
            return replace(self, columns=dict(columns))
        return replace(self, columns={name: self.columns.get(name, path_of(name)) for name in columns})

    def where(self, condition: str, prefilter: bool = True) -> TableSource:  # noqa: FBT001, FBT002  # lancedb's
        both = condition if self.filter is None else f"({self.filter}) AND ({condition})"
        return replace(self, filter=both)

    def limit(self, limit: int | None) -> TableSource:
        return replace(self, limit_rows=limit)

    def offset(self, offset: int) -> TableSource:
        return replace(self, offset_rows=offset)

    def with_row_id(self, with_row_id: bool = True) -> TableSource:  # noqa: FBT001, FBT002  # lancedb's
        return replace(self, has_row_id=with_row_id)

    @property
    def schema(self) -> pa.Schema:
        return self._scanner(None).projected_schema

    def count_rows(self) -> int:
        return sum(batch.num_rows for batch in self.to_batches())

    def to_batches(self, batch_size: int | None = None, **_: Any) -> pa.RecordBatchReader:
        scanner = self._scanner(batch_size)
        batches = scanner.to_batches() if self.rows is None else self._take_batches(batch_size or BATCH_ROWS)
        return pa.RecordBatchReader.from_batches(scanner.projected_schema, self._counted(batches))

    def to_arrow(self, **_: Any) -> pa.Table:
        return self.to_batches().read_all()

    def to_pandas(self, **_: Any) -> pd.DataFrame:
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_df(self) -> pd.DataFrame:
        return self.to_pandas()

    def to_list(self, **_: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def _scanner(self, batch_size: int | None) -> lance.LanceScanner:
        return self.dataset.scanner(
            columns=dict(self.columns),
            filter=self.filter,
            limit=self.limit_rows,
            offset=self.offset_rows,
            batch_size=batch_size,
            with_row_id=self.has_row_id,
            blob_handling=WHOLE_BLOBS,
        )

    def _take_batches(self, size: int) -> Iterator[pa.RecordBatch]:
        """The rows in `rows` that remain after filter, offset and limit."""
        row_ids = np.array((self.rows or BitMap64()).to_array(), dtype=np.uint64)
        names = [*self.columns, *([ROW_ID] if self.has_row_id else [])]
        to_skip, remaining = self.offset_rows or 0, self.limit_rows
        for start in range(0, len(row_ids), size):
            table = self._take(row_ids[start : start + size])
            part = table.slice(to_skip) if remaining is None else table.slice(to_skip, remaining)
            to_skip = max(to_skip - len(table), 0)
            remaining = None if remaining is None else remaining - len(part)
            yield from part.select(names).combine_chunks().to_batches()
            if remaining == 0:
                return

    def _take(self, row_ids: RowIds) -> pa.Table:
        expressions = {**self.columns, ROW_ID: ROW_ID}
        if self.filter is None:
            return self.dataset._take_rows(row_ids, columns=expressions, blob_handling=WHOLE_BLOBS)
        expressions[MATCHES] = self.filter
        table = self.dataset._take_rows(row_ids, columns=expressions, blob_handling=WHOLE_BLOBS)
        return table.filter(table[MATCHES])

    def _counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.on_rows(batch.num_rows)
            yield batch


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
