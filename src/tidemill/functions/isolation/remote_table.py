"""The source of a table function inside a child: the task reads it, one batch at a time, when it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tidemill.functions.isolation.protocol import Message

if TYPE_CHECKING:
    import pandas as pd

# Sends a request to the task and returns the response.
Ask: TypeAlias = Callable[[Mapping[str, Any]], Message]


@dataclass(frozen=True)
class RemoteTable:
    """Has the reading methods of a lancedb query builder; methods that refine the query return a new one."""

    ask: Ask
    steps: tuple[tuple[str, Any], ...] = ()

    def select(self, columns: Sequence[str] | Mapping[str, str]) -> RemoteTable:
        return self._with("select", dict(columns) if isinstance(columns, Mapping) else list(columns))

    def where(self, condition: str, prefilter: bool = True) -> RemoteTable:  # noqa: FBT001, FBT002  # lancedb's
        return self._with("where", condition)

    def limit(self, limit: int | None) -> RemoteTable:
        return self._with("limit", limit)

    def offset(self, offset: int) -> RemoteTable:
        return self._with("offset", offset)

    def with_row_id(self, with_row_id: bool = True) -> RemoteTable:  # noqa: FBT001, FBT002  # lancedb's
        return self._with("with_row_id", with_row_id)

    @property
    def schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self._request(schema=True).body))

    def count_rows(self) -> int:
        return sum(batch.num_rows for batch in self.to_batches())

    def to_batches(self, batch_size: int | None = None, **_: Any) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self._batches(batch_size))

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

    def _with(self, name: str, argument: Any) -> RemoteTable:
        return replace(self, steps=(*self.steps, (name, argument)))

    def _batches(self, batch_size: int | None) -> Iterator[pa.RecordBatch]:
        reader = self._request(batch_size=batch_size).metadata["reader"]
        while (answer := self.ask({"reader": reader})).body:
            yield answer.batch()

    def _request(self, **wanted: Any) -> Message:
        return self.ask({"steps": self.steps, **wanted})
