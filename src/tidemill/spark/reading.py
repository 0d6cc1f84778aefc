"""How a task reads a fragment: only the inputs of rows that have to be computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, TypeAlias

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.jobs.model.columns import FillColumn, FunctionCall, input_expressions, quoted
from tidemill.jobs.model.coverage import member_mask
from tidemill.jobs.model.plans import FragmentWork

MATCHES: Final = "__matches"
ROW_ID: Final = "_rowid"

RowIds: TypeAlias = npt.NDArray[np.uint64]
Positions: TypeAlias = npt.NDArray[np.int64]
Blobs: TypeAlias = Mapping[int, Sequence[BinaryIO | None]]

SCAN_ROWS: Final = 65536
# Bytes of the result that are held at a time.
SCAN_BYTES: Final = 32 << 20
MIN_SCAN_ROWS: Final = 1024
# Blobs may be large, so few rows of a table with blobs are held at a time.
BLOB_SCAN_ROWS: Final = 64
BLOB_METADATA_KEY: Final = b"lance-encoding:blob"
# Functions receive the bytes of blobs, not their descriptions.
WHOLE_BLOBS: Final = "all_binary"
# Below this share of rows, taking single rows is faster than a scan.
DENSE: Final = 0.2
OFFSET_MASK: Final = np.uint64(0xFFFFFFFF)
# Assumed bytes per value for strings, lists and other types of variable width.
DEFAULT_WIDTH: Final = 64


@dataclass(frozen=True)
class Inputs:
    """The arguments of a function: Arrow columns, and for some of them files that it reads lazily."""

    columns: pa.RecordBatch
    blobs: Blobs


@dataclass(frozen=True)
class ReadRows:
    """Rows of a fragment in storage order; `wanted` are the positions of those to compute.

    `carried` holds the current values of the columns; `inputs` reads the inputs at given positions.
    """

    row_ids: RowIds
    offsets: Positions
    wanted: Positions
    carried: pa.RecordBatch | None
    inputs: Callable[[Positions], Inputs]


class FragmentReader:
    """Reads one fragment for a column stage."""

    def __init__(self, dataset: lance.LanceDataset, stage: FillColumn, fragment: lance.LanceFragment) -> None:
        self._dataset = dataset
        self._stage = stage
        self._fragment = fragment
        self._inputs = InputReader(dataset, stage.call)

    def read(self, work: FragmentWork, *, has_values: bool) -> Iterator[ReadRows]:
        """Reads all rows, or the span of the work; `has_values` means that most values are known already."""
        carried = {} if work.rows is None else {f"__old_{i}": quoted(n) for i, n in enumerate(self._names)}
        is_dense = self._is_dense(work, has_values=has_values)
        expressions = self._inputs.expressions if is_dense else {}
        offset, limit = work.span or (None, None)
        for batch in self._fragment.scanner(
            columns={**expressions, **carried},
            with_row_id=True,
            with_row_address=True,
            batch_size=self._batch_size(),
            blob_handling=WHOLE_BLOBS,
            offset=offset,
            limit=limit,
        ).to_batches():
            yield self._rows(batch, work, list(carried), is_dense=is_dense)

    @property
    def _names(self) -> Sequence[str]:
        return list(self._stage.columns.names)

    def _rows(
        self, batch: pa.RecordBatch, work: FragmentWork, carried: Sequence[str], *, is_dense: bool
    ) -> ReadRows:
        row_ids = batch["_rowid"].to_numpy()
        all_positions = np.arange(len(row_ids))
        wanted = all_positions if work.rows is None else np.flatnonzero(member_mask(row_ids, work.rows))
        scanned = batch.select(list(self._inputs.expressions)) if is_dense else None

        def inputs(positions: Positions) -> Inputs:
            if scanned is None:
                return self._inputs.take(row_ids[positions])
            narrowed = scanned if len(positions) == len(row_ids) else scanned.take(pa.array(positions))
            return self._inputs.with_blobs(narrowed, row_ids[positions])

        return ReadRows(
            row_ids=row_ids,
            offsets=(batch["_rowaddr"].to_numpy() & OFFSET_MASK).astype(np.int64),
            wanted=wanted,
            carried=batch.select(list(carried)) if carried else None,
            inputs=inputs,
        )

    def _is_dense(self, work: FragmentWork, *, has_values: bool) -> bool:
        live = self._fragment.physical_rows - self._fragment.num_deletions
        return not has_values and work.row_count >= DENSE * max(live, 1)

    def _batch_size(self) -> int:
        width = sum(byte_width(field.type) for field in self._stage.columns)
        rows = min(SCAN_ROWS, max(MIN_SCAN_ROWS, SCAN_BYTES // max(width, 1)))
        return min(rows, scan_rows(self._dataset)) if self._inputs.reads_blobs else rows


class InputReader:
    """Reads the inputs of a function under generated names, since the table may use any other name."""

    def __init__(self, dataset: lance.LanceDataset, call: FunctionCall) -> None:
        self._dataset = dataset
        self._call = call
        lazy = set(call.function.blob_parameters)
        self._lazy = {
            number: call.inputs[number]
            for number, name in enumerate(call.function.parameters)
            if name in lazy
        }
        columns = input_columns(call)
        self._names = list(columns)
        self.expressions = {
            name: text for number, (name, text) in enumerate(columns.items()) if number not in self._lazy
        }

    @property
    def reads_blobs(self) -> bool:
        """Whether the rows include the bytes of blobs."""
        marked = {f.name for f in self._dataset.schema if BLOB_METADATA_KEY in (f.metadata or {})}
        return any(
            name.split(".")[0].strip("`") in marked
            for number, name in enumerate(self._call.inputs)
            if number not in self._lazy
        )

    def take(self, row_ids: RowIds) -> Inputs:
        if not len(row_ids) or not self.expressions:
            return self.with_blobs(None, row_ids)
        wanted = {**self.expressions, "_rowid": "_rowid"}
        table = self._dataset._take_rows(row_ids, columns=wanted, blob_handling=WHOLE_BLOBS)
        if len(table) != len(row_ids):
            raise LookupError(f"version {self._dataset.version} has {len(table)} of {len(row_ids)} rows")
        batch = table.combine_chunks().to_batches()[0].select(list(self.expressions))
        return self.with_blobs(batch, row_ids)

    def with_blobs(self, batch: pa.RecordBatch | None, row_ids: RowIds) -> Inputs:
        """Adds the files of lazily read blobs, whose columns are null."""
        columns = [
            pa.nulls(len(row_ids)) if batch is None or name not in self.expressions else batch[name]
            for name in self._names
        ]
        blobs = {number: self._blobs(column, row_ids) for number, column in self._lazy.items()}
        return Inputs(pa.record_batch(columns, names=self._names), blobs)

    def _blobs(self, column: str, row_ids: RowIds) -> Sequence[BinaryIO | None]:
        if not len(row_ids):
            return []
        files: Sequence[Any] = self._dataset.take_blobs(column, ids=row_ids.tolist())
        return files


def input_columns(call: FunctionCall, prefix: str = "__input") -> dict[str, str]:
    """The expressions to scan for a function, under generated names."""
    return {f"{prefix}_{number}": text for number, text in enumerate(input_expressions(call))}


def scan_rows(dataset: lance.LanceDataset) -> int:
    has_blobs = any(BLOB_METADATA_KEY in (field.metadata or {}) for field in dataset.schema)
    return BLOB_SCAN_ROWS if has_blobs else SCAN_ROWS


def byte_width(kind: pa.DataType) -> int:
    """Approximate number of bytes per value."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * byte_width(kind.value_type)
    if pa.types.is_struct(kind):
        return sum(byte_width(field.type) for field in kind)
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return DEFAULT_WIDTH
