"""The task kernel that calls a table function, once per partition of a view's source."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.model.functions import Environment
from tidemill.functions.api import FunctionRaised
from tidemill.functions.calling.in_process import yielded_batches
from tidemill.functions.environments import activated, missing_packages
from tidemill.functions.failures import CRASHED
from tidemill.functions.isolation.pool import FunctionHost, Isolation
from tidemill.functions.isolation.table_calls import isolated_batches
from tidemill.jobs.model.columns import path_of
from tidemill.jobs.model.failures import ErrorAction, RowFailure
from tidemill.jobs.model.views import KEY, KeptResults, Partition, RunTableFunction, WrittenRows
from tidemill.lance.checkpoint_files import SavedResult
from tidemill.lance.fingerprints import Hashes, SetFingerprint, fingerprints
from tidemill.lance.view_writer import ViewWriter
from tidemill.spark.reading import MATCHES, ROW_ID, WHOLE_BLOBS, RowIds
from tidemill.spark.task_reports import TaskReport
from tidemill.spark.views.partitions import InputWatch, PartitionInputs, PartitionResults, from_lists

if TYPE_CHECKING:
    import pandas as pd


BATCH_ROWS: Final = 8192


@dataclass(frozen=True)
class TableSource:
    """Has the reading methods of a lancedb query builder; each call reads the data again.

    Methods that refine the query return a new source. `rows` restricts the source to those row ids. `watch`
    notes what is read.
    """

    dataset: lance.LanceDataset
    columns: Mapping[str, str]
    filter: str | None
    limit_rows: int | None
    offset_rows: int | None
    on_rows: Callable[[int], None]
    has_row_id: bool = False
    rows: BitMap64 | None = None
    watch: InputWatch = field(default_factory=InputWatch)
    is_refined: bool = False

    def select(self, columns: Sequence[str] | Mapping[str, str]) -> TableSource:
        if isinstance(columns, Mapping):
            self.watch.note_expressions(columns.values())
            return self._refined(columns=dict(columns))
        self.watch.note_expressions(columns)
        return self._refined(columns={name: self.columns.get(name, path_of(name)) for name in columns})

    def where(self, condition: str, prefilter: bool = True) -> TableSource:  # noqa: FBT001, FBT002  # lancedb's
        self.watch.note_expressions([condition])
        both = condition if self.filter is None else f"({self.filter}) AND ({condition})"
        return self._refined(filter=both)

    def limit(self, limit: int | None) -> TableSource:
        return self._refined(limit_rows=limit)

    def offset(self, offset: int) -> TableSource:
        return self._refined(offset_rows=offset)

    def with_row_id(self, with_row_id: bool = True) -> TableSource:  # noqa: FBT001, FBT002  # lancedb's
        self.watch.has_read_row_ids |= with_row_id
        return replace(self, has_row_id=with_row_id)

    def _refined(self, **changes: Any) -> TableSource:
        return replace(self, **changes, is_refined=True)

    @property
    def schema(self) -> pa.Schema:
        return self._scanner(None).projected_schema

    def count_rows(self) -> int:
        return sum(batch.num_rows for batch in self.to_batches())

    def to_batches(self, batch_size: int | None = None, **_: Any) -> pa.RecordBatchReader:
        schema = self._scanner(batch_size).projected_schema
        return pa.RecordBatchReader.from_batches(schema, self._counted(self._batches(batch_size)))

    def inputs(self) -> PartitionInputs:
        """The fingerprints of all rows."""
        inputs = PartitionInputs()
        for batch in replace(self, has_row_id=True)._read(None):
            inputs.add(batch)
        return inputs

    def _batches(self, batch_size: int | None) -> Iterator[pa.RecordBatch]:
        """The rows; what is read of all of them is noted on the way."""
        if self.is_refined or self.watch.inputs is not None:
            yield from self._read(batch_size)
            return
        inputs = PartitionInputs()
        for batch in replace(self, has_row_id=True)._read(batch_size):
            inputs.add(batch)
            yield batch if self.has_row_id else batch.select(list(self.columns))
        self.watch.inputs = inputs

    def _read(self, batch_size: int | None) -> Iterator[pa.RecordBatch]:
        if self.rows is not None:
            return self._take_batches(batch_size or BATCH_ROWS)
        batches: Iterator[pa.RecordBatch] = self._scanner(batch_size).to_batches()
        return batches

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
    """Calls the table function for each partition and writes the rows it yields."""
    environment = stage.policy.environment
    if not environment.packages:
        packages = missing_packages(stage.call.function.requirements)
        environment = replace(environment, packages=packages)
    with ExitStack() as stack:
        is_in_task = host.isolation is Isolation.TASK
        if is_in_task:
            stack.enter_context(activated(environment, host.environments_root))
        results = None if stage.kept is None else stack.enter_context(_results(stage, stage.kept))
        writer = stack.enter_context(ViewWriter(stage.target))
        task = _Task(stage, writer, report, results, None if is_in_task else (host, environment))
        for partition in partitions:
            task.write(partition)
        return [task.finish()]


def _results(stage: RunTableFunction, kept: KeptResults) -> PartitionResults:
    is_skipping = stage.policy.on_error.action is ErrorAction.SKIP
    return PartitionResults(
        kept, stage.source_version, stage.batches, _made(stage), with_failures=is_skipping
    )


def _made(stage: RunTableFunction) -> pa.Schema:
    """The columns that the function yields."""
    return pa.schema([field for field in stage.target.output if not _is_key(stage, field)])


def _is_key(stage: RunTableFunction, field: pa.Field) -> bool:
    return stage.target.key is not None and field.name == KEY


class _Task:
    """Writes one partition after another, and calls the function for those whose result is not known."""

    def __init__(
        self,
        stage: RunTableFunction,
        writer: ViewWriter,
        report: TaskReport,
        results: PartitionResults | None,
        isolation: tuple[FunctionHost, Environment] | None,
    ) -> None:
        self._stage = stage
        self._isolation = isolation
        self._writer = writer
        self._report = report
        self._results = results
        self._dataset = lance.dataset(stage.source_location, version=stage.source_version)
        self._failures: list[RowFailure] = []
        self._reused = 0

    def write(self, partition: Partition) -> None:
        results, inputs = self._results, None
        if results is not None and results.may_know(_unsigned(partition)):
            inputs = self._source(partition).inputs()
            if self._reuse(partition, inputs, results):
                self._reused += inputs.rows
                self._report.rows_done(inputs.rows)
                return
        self._compute(partition, inputs)

    def finish(self) -> WrittenRows:
        if self._results is not None:
            # First of all what would cost the most to make again.
            self._results.save()
        written = self._writer.finish()
        self._report.skipped(self._failures)
        self._report.flush()
        segment = None if self._results is None else self._results.write_segment()
        return replace(
            written,
            skipped=BitMap64([failure.row_id for failure in self._failures if failure.row_id is not None]),
            failures=tuple(self._failures),
            reused=self._reused,
            segments=() if segment is None else ((0, segment),),
        )

    def _reuse(self, partition: Partition, inputs: PartitionInputs, results: PartitionResults) -> bool:
        key = self._key(partition)
        if results.is_held(inputs, self._writer.held_fingerprint(key)):
            self._writer.keep(key)
            return True
        found = results.find_saved(_unsigned(partition), inputs)
        if found is None:
            return False
        hashed, saved = found
        if saved.failure is not None:
            self._failures.append(saved.failure)
            return True
        outputs = SetFingerprint()
        self._writer.put_stream(key, self._saved_rows(partition, saved, outputs))
        results.note(hashed, outputs)
        return True

    def _saved_rows(
        self, partition: Partition, saved: SavedResult, outputs: SetFingerprint
    ) -> Iterator[pa.RecordBatch]:
        for rows in from_lists(saved.parts):
            outputs.add(fingerprints(rows.columns))
            yield self._with_key(rows, partition)

    def _compute(self, partition: Partition, inputs: PartitionInputs | None) -> None:
        """Raises FunctionRaised when the function fails and the policy does not allow skipping."""
        policy = self._stage.policy.on_error
        is_streaming = policy.action is ErrorAction.FAIL and policy.attempts == 1
        for attempt in range(1, policy.attempts + 1):
            call = _Call(self._source(partition), inputs)
            try:
                self._call(partition, call, is_streaming=is_streaming)
            except FunctionRaised as raised:
                failure = _on_partition(raised.failure, partition, attempt)
                if is_streaming and raised.failure.exception == CRASHED:
                    raise FunctionRaised(failure) from raised
                if is_streaming:
                    raise
                is_retryable = not policy.retry_on or raised.is_one_of(policy.retry_on)
                if attempt < policy.attempts and is_retryable:
                    time.sleep(policy.backoff_seconds * 2 ** (attempt - 1))
                    continue
                if policy.action is ErrorAction.FAIL:
                    raise FunctionRaised(failure) from raised
                self._skip(partition, call, failure)
            return

    def _skip(self, partition: Partition, call: _Call, failure: RowFailure) -> None:
        self._failures.append(failure)
        if self._results is not None:
            seconds = monotonic() - call.began_at
            self._results.add_failure(_unsigned(partition), call.hashed(), failure, seconds)

    def _call(self, partition: Partition, call: _Call, *, is_streaming: bool) -> None:
        key, made = self._key(partition), _made(self._stage)
        rows = self._yielded(call.source, made)
        if self._results is None:
            self._put(key, partition, rows, is_streaming=is_streaming)
            return
        recorded = self._results.recorded(_unsigned(partition), call.hashed)
        try:
            self._put(key, partition, recorded.record(rows), is_streaming=is_streaming)
        except BaseException:
            recorded.abandon()
            raise
        self._results.add(_unsigned(partition), call.hashed(), recorded)

    def _yielded(self, source: TableSource, made: pa.Schema) -> Iterator[pa.RecordBatch]:
        function = self._stage.call.function
        if self._isolation is None:
            return yielded_batches(function, source, made)
        return isolated_batches(function, source, made, *self._isolation)

    def _put(
        self, key: int | None, partition: Partition, rows: Iterable[pa.RecordBatch], *, is_streaming: bool
    ) -> None:
        # Collected first where the function may fail after yielding rows, and others take their place.
        made = rows if is_streaming else list(rows)
        self._writer.put_stream(key, (self._with_key(batch, partition) for batch in made))

    def _key(self, partition: Partition) -> int | None:
        return None if self._stage.target.key is None else partition.key

    def _source(self, partition: Partition) -> TableSource:
        stage = self._stage
        names = stage.call.inputs or stage.columns
        return TableSource(
            dataset=self._dataset,
            columns={name: stage.columns.get(name, path_of(name)) for name in names},
            filter=stage.filter,
            limit_rows=stage.limit,
            offset_rows=stage.offset,
            on_rows=self._report.rows_done,
            rows=partition.rows,
        )

    def _with_key(self, batch: pa.RecordBatch, partition: Partition) -> pa.RecordBatch:
        output = self._stage.target.output
        if self._stage.target.key is None:
            return batch
        keys = pa.repeat(pa.scalar(partition.key, pa.int64()), len(batch))
        return pa.record_batch(
            [keys if field.name == KEY else batch.column(field.name) for field in output], schema=output
        )


class _Call:
    """One attempt at a partition, and the fingerprint of what the function was given."""

    def __init__(self, source: TableSource, inputs: PartitionInputs | None) -> None:
        source.watch.inputs = inputs
        self.source = source
        self.began_at = monotonic()

    def hashed(self) -> Hashes:
        """Reads the inputs if the function has not read all of them itself."""
        watch = self.source.watch
        if watch.inputs is None:
            watch.inputs = self.source.inputs()
        return watch.inputs.hashed(with_row_ids=watch.has_read_row_ids)


def _unsigned(partition: Partition) -> int:
    return partition.key % (1 << 64)


def _on_partition(failure: RowFailure, partition: Partition, attempts: int) -> RowFailure:
    message = f"{partition.name}: {failure.message}"
    return replace(failure, row_id=_unsigned(partition), message=message, attempts=attempts)
