"""How a task reads the source of a view: only the rows that it evaluates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import lance
import numpy as np
import pyarrow as pa

from tidemill.jobs.model.coverage import member_mask
from tidemill.jobs.model.plans import FragmentWork
from tidemill.jobs.model.stages import WriteViewRows
from tidemill.lance.column_files import get_fragment
from tidemill.spark.reading import DENSE, SCAN_ROWS, WHOLE_BLOBS, RowIds, input_columns, scan_rows

ROWS_PER_CALL: Final = SCAN_ROWS // 16
# A capped view may need few rows, so the first batch is small.
FIRST_BATCH_ROWS: Final = 64
MATCHES: Final = "__matches"
ROW_ID: Final = "_rowid"


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
