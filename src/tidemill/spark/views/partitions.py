"""The results of a table function, in a task: what is kept of them, by partition.

A partition's result depends on the rows that the function is given. So `PartitionResults` does for partitions
what `results` does for single rows, with one fingerprint over all rows of a partition and one over all rows
of its result, in whatever order they come. The function is not called if the view holds what it returned for
these inputs, or if a checkpoint has the result.

Rows of the source are identified by their values, unless the function has read their ids: then these count as
inputs, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from tidemill.functions.api import Computed
from tidemill.jobs.model.columns import BatchPolicy
from tidemill.jobs.model.failures import RowFailure
from tidemill.jobs.model.views import KeptResults
from tidemill.lance.checkpoint_files import CheckpointValues, CheckpointWriter, SavedResult, find_checkpoints
from tidemill.lance.fingerprints import (
    Hashes,
    KnownResults,
    SetFingerprint,
    fingerprints,
    paired,
    write_segment,
)
from tidemill.spark.kernels import MAX_UNSAVED_BYTES, CheckpointBuffer
from tidemill.spark.reading import ROW_ID


class PartitionInputs:
    """Fingerprints of the rows of a partition: of their values alone, and of values and ids."""

    def __init__(self) -> None:
        self._values = SetFingerprint()
        self._values_and_ids = SetFingerprint()

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows with their ids."""
        columns = [batch.column(name) for name in batch.schema.names if name != ROW_ID]
        hashes = fingerprints(columns) if columns else np.zeros(len(batch), dtype=np.uint64)
        self._values.add(hashes)
        self._values_and_ids.add(paired(hashes, fingerprints([batch.column(ROW_ID)])))

    @property
    def rows(self) -> int:
        return self._values.rows

    @property
    def candidates(self) -> tuple[Hashes, Hashes]:
        """What a result for these inputs may be kept under."""
        return self.hashed(with_row_ids=False), self.hashed(with_row_ids=True)

    def hashed(self, *, with_row_ids: bool) -> Hashes:
        chosen = self._values_and_ids if with_row_ids else self._values
        return paired(chosen.value, np.array([with_row_ids], dtype=np.uint64))


@dataclass
class InputWatch:
    """Notes what a table function reads: whether row ids, and `inputs` once it has read all of them."""

    inputs: PartitionInputs | None = None
    has_read_row_ids: bool = False

    def note_expressions(self, expressions: Iterable[str]) -> None:
        self.has_read_row_ids |= any("_row" in text for text in expressions)


class RecordedResult:
    """The rows of a result on their way into the view: their fingerprint, and a copy for a checkpoint.

    `open_file` opens the checkpoint of a result that is too large to be held in memory.
    """

    def __init__(self, policy: BatchPolicy, open_file: Callable[[], CheckpointWriter]) -> None:
        self._policy = policy
        self._open_file = open_file
        self._size = 0
        self.rows: list[pa.RecordBatch] | None = []
        self.outputs = SetFingerprint()
        self.seconds = 0.0
        self.file: CheckpointWriter | None = None

    @property
    def is_worth_saving(self) -> bool:
        return self._policy.is_worth_saving(self.seconds, self._size, 1)

    def record(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Passes the rows on; the time of whoever consumes them does not count."""
        results = iter(batches)
        while True:
            began_at = monotonic()
            batch = next(results, None)
            self.seconds += monotonic() - began_at
            if batch is None:
                return
            self.outputs.add(fingerprints(batch.columns))
            self._copy(batch)
            yield batch

    def abandon(self) -> None:
        if self.file is not None:
            self.file.abandon()

    def _copy(self, batch: pa.RecordBatch) -> None:
        self._size += batch.nbytes
        if self.file is not None:
            self.file.write(as_list([batch]))
        elif self.rows is not None:
            self.rows.append(batch)
            if self._size > MAX_UNSAVED_BYTES:
                self._spill(self.rows)

    def _spill(self, rows: list[pa.RecordBatch]) -> None:
        self.rows = None
        if self.is_worth_saving:
            self.file = self._open_file()
            for batch in rows:
                self.file.write(as_list([batch]))


def as_list(batches: list[pa.RecordBatch]) -> pa.Array:
    """The rows as one value: a list of structs."""
    table = pa.Table.from_batches(batches).combine_chunks()
    columns = [pa.concat_arrays([pa.array([], c.type), *c.chunks]) for c in table.columns]
    rows = pa.StructArray.from_arrays(columns, fields=list(table.schema))
    return pa.LargeListArray.from_arrays(pa.array([0, len(rows)], pa.int64()), rows)


def from_lists(lists: Iterable[pa.Array]) -> Iterator[pa.RecordBatch]:
    for rows in lists:
        yield pa.RecordBatch.from_struct_array(rows.flatten())


class PartitionResults:
    """What is kept of a table function's results; leaving the block saves what was computed."""

    def __init__(
        self,
        kept: KeptResults,
        version: int,
        policy: BatchPolicy,
        output: pa.Schema,
        *,
        with_failures: bool,
    ) -> None:
        self._kept = kept
        self._version = version
        self._policy = policy
        self._output = output
        self._known = KnownResults(kept.segments)
        # A task that runs a second time finds what the first one left.
        found = find_checkpoints(kept.checkpoint_location, kept.checkpoints)
        self._saved = CheckpointValues(found, with_failures=with_failures)
        self._buffer = CheckpointBuffer(kept.checkpoint_location, version, policy)
        self._new: list[Hashes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            self._buffer.flush()

    def save(self) -> None:
        """Checkpoints what was computed, unless that is quicker to compute again than to write."""
        self._buffer.flush()

    def write_segment(self) -> str | None:
        """Writes the fingerprints of new results; returns the path, None if there are none."""
        return write_segment(self._kept.segment_location, np.concatenate(self._new)) if self._new else None

    def may_know(self, key: int) -> bool:
        """Whether it is worth reading the inputs of a partition before the function is called."""
        return bool(self._kept.segments) or self._saved.has(key)

    def is_held(self, inputs: PartitionInputs, held: Hashes) -> bool:
        """Whether the function returned these rows for these inputs."""
        return any(bool(self._known.match(paired(one, held))[0]) for one in inputs.candidates)

    def find_saved(self, key: int, inputs: PartitionInputs) -> tuple[Hashes, SavedResult] | None:
        """The result in a checkpoint, and the fingerprint of the inputs that it is kept under."""
        for one in inputs.candidates:
            saved = self._saved.find_result(key, int(one[0]))
            if saved is not None:
                return one, saved
        return None

    def note(self, inputs: Hashes, outputs: SetFingerprint) -> None:
        """Remembers the fingerprint of a new result."""
        self._new.append(paired(inputs, outputs.value))

    def recorded(self, key: int, find_inputs: Callable[[], Hashes]) -> RecordedResult:
        def open_file() -> CheckpointWriter:
            return CheckpointWriter(self._kept.checkpoint_location, self._version, key, int(find_inputs()[0]))

        return RecordedResult(self._policy, open_file)

    def add(self, key: int, inputs: Hashes, result: RecordedResult) -> None:
        """Keeps a result that is complete."""
        self.note(inputs, result.outputs)
        if result.file is not None:
            is_right = result.file.inputs == int(inputs[0]) and result.is_worth_saving
            result.file.finish() if is_right else result.file.abandon()
        elif result.rows is not None:
            empty = pa.record_batch([pa.array([], f.type) for f in self._output], schema=self._output)
            self._add(key, inputs, Computed(as_list([empty, *result.rows])), result.seconds)

    def add_failure(self, key: int, inputs: Hashes, failure: RowFailure, seconds: float) -> None:
        kind = pa.large_list(pa.struct(list(self._output)))
        self._add(key, inputs, Computed(pa.nulls(1, kind), (failure,)), seconds)

    def _add(self, key: int, inputs: Hashes, computed: Computed, seconds: float) -> None:
        self._buffer.add(np.array([key], dtype=np.uint64), computed, seconds, inputs)
