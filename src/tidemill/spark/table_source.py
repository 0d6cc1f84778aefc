"""The source passed to a table function: a query that it can refine and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.jobs.model.derived import path_of
from tidemill.spark.reading import WHOLE_BLOBS, RowIds
from tidemill.spark.view_reading import MATCHES, ROW_ID

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
