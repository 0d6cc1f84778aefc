"""The rows a table function is given: a query it may narrow and read as it likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa

from tidemill.jobs.model.derived import path_of
from tidemill.spark.reading import WHOLE_BLOBS

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TableSource:
    """Has the reading methods of a lancedb query builder; every one of them reads anew.

    What narrows it gives another source and leaves this one as it was.
    """

    dataset: lance.LanceDataset
    columns: Mapping[str, str]
    filter: str | None
    limit_rows: int | None
    offset_rows: int | None
    seen: Callable[[int], None]
    has_row_id: bool = False

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
        return pa.RecordBatchReader.from_batches(scanner.projected_schema, self._counted(scanner))

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

    def _counted(self, scanner: lance.LanceScanner) -> Iterator[pa.RecordBatch]:
        for batch in scanner.to_batches():
            self.seen(batch.num_rows)
            yield batch
