"""Column files: values for every physical row of a fragment, including deleted rows."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any
from uuid import uuid4

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import DataFile


class ColumnFileWriter:
    """Writes values in ascending physical order, with nulls for deleted rows."""

    def __init__(
        self, dataset: lance.LanceDataset, location: str, physical_rows: int, columns: pa.Schema
    ) -> None:
        self.path = f"{uuid4()}.lance"
        self._schema = columns
        self._physical_rows = physical_rows
        self._next = 0
        self._file = LanceFileWriter(
            f"{location}/data/{self.path}", self._schema, version=dataset.data_storage_version
        )

    def __enter__(self) -> ColumnFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._write_nulls(self._physical_rows - self._next)
            self._file.close()

    def write(self, offsets: npt.NDArray[np.int64], columns: Sequence[pa.Array]) -> None:
        if not len(offsets):
            return
        span = int(offsets[-1]) - self._next + 1
        if span != len(offsets):
            indices = np.full(span, -1, dtype=np.int64)
            indices[offsets - self._next] = np.arange(len(offsets))
            positions = pa.array(indices, mask=indices < 0)
            columns = [values.take(positions) for values in columns]
        self._write(columns)
        self._next = int(offsets[-1]) + 1

    def _write(self, columns: Sequence[pa.Array]) -> None:
        self._file.write_batch(pa.record_batch(list(columns), schema=self._schema))

    def _write_nulls(self, count: int) -> None:
        if count:
            self._write([pa.nulls(count, field.type) for field in self._schema])


def merged(current: pa.Array, positions: npt.NDArray[np.int64], values: pa.Array) -> pa.Array:
    """The current values with those at the positions replaced; works for every Arrow type."""
    order = np.arange(len(current))
    order[positions] = len(current) + np.arange(len(values))
    return pa.concat_arrays([current, values]).take(pa.array(order))


def get_fragment(dataset: lance.LanceDataset, fragment_id: int) -> lance.LanceFragment:
    fragment = dataset.get_fragment(fragment_id)
    if fragment is None:
        raise LookupError(f"version {dataset.version} has no fragment {fragment_id}")
    return fragment


def describe_file(dataset: lance.LanceDataset, path: str) -> dict[str, Any]:
    """Describes a column file for a commit. Reads the file, so call it where the file was written."""
    file = DataFile.create(dataset, path)
    return {
        "path": str(file.path),
        "fields": list(file.fields),
        "column_indices": list(file.column_indices),
        "file_major_version": file.file_major_version,
        "file_minor_version": file.file_minor_version,
        "file_size_bytes": file.file_size_bytes,
    }
