"""Files of results before they are committed: new fragments of views, and column files.

New fragments are written in a background thread, with row ids and deletions. A column file holds values for
every physical row of a fragment, including deleted rows.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Full, Queue
from types import TracebackType
from typing import Any, Final
from uuid import uuid4

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import DataFile, FragmentMetadata, write_fragments
from pyroaring import BitMap

from tidemill.storage.warehouse import open_location

DEFAULT_ROWS_PER_FRAGMENT: Final = 1 << 20
QUEUE_SIZE: Final = 2
POLL_SECONDS: Final = 0.2
# Field numbers of Lance's messages.
SEGMENT: Final = 1
RANGE: Final = 1
ARRAY: Final = 5
U32: Final = 2
IDS_PER_SEGMENT: Final = 1 << 16
# From this average run length on, ranges are the shorter encoding.
MIN_IDS_PER_RUN: Final = 4


class Abandoned(Exception):
    """The fragments are no longer needed."""


class InvalidText(ValueError):
    """A text that is not valid UTF-8: once stored, the column could not be read any more."""


def check_texts(batch: pa.RecordBatch) -> None:
    """Raises InvalidText with the column and the row."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if _holds_text(column.type) and not _is_valid(column):
            row = _first_invalid(column)
            raise InvalidText(f"column {name!r} has a text that is not valid UTF-8{_described(batch, row)}")


def _holds_text(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _holds_text(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _holds_text(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_holds_text(kind.field(index).type) for index in range(kind.num_fields))
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _is_valid(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _first_invalid(column: pa.Array) -> int:
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        # Copied, because a slice is validated with what it is a slice of.
        is_before = not _is_valid(column.take(pa.array(range(low, middle))))
        low, high = (low, middle) if is_before else (middle, high)
    return low


def _described(batch: pa.RecordBatch, row: int) -> str:
    """Names the row by the first column that is fit for it."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not name.startswith("_") and not pa.types.is_nested(column.type) and _is_valid(column):
            return f", in the row with {name} = {column[row].as_py()!r:.80}"
    return ""


class FragmentSink:
    """Accepts batches of one schema; the thread starts with the first batch."""

    def __init__(self, location: str, schema: pa.Schema, max_rows: int | None) -> None:
        self._location = location
        self._schema = schema
        self._max_rows = max_rows or DEFAULT_ROWS_PER_FRAGMENT
        self._queue: Queue[pa.RecordBatch | Abandoned | None] = Queue(QUEUE_SIZE)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fragments")
        self._writing: Future[list[FragmentMetadata]] | None = None
        self.rows = 0

    def put(self, batch: pa.RecordBatch) -> None:
        """Queues a batch. Raises the error that occurred while writing earlier batches, or InvalidText."""
        check_texts(batch)
        if self._writing is None:
            self._writing = self._pool.submit(self._write)
        self.rows += len(batch)
        self._offer(batch)

    def close(self) -> list[FragmentMetadata]:
        """Waits until everything is written and returns the fragments."""
        if self._writing is None:
            return []
        self._offer(None)
        return self._writing.result()

    def abandon(self) -> None:
        """Stops the thread, even if batches are pending."""
        if self._writing is not None and not self._writing.done():
            self._offer(Abandoned())
        self._pool.shutdown()

    def _offer(self, item: pa.RecordBatch | Abandoned | None) -> None:
        while self._writing is not None:
            try:
                self._queue.put(item, timeout=POLL_SECONDS)
            except Full:
                if self._writing.done():
                    self._raise_failure(item)
                    return
            else:
                return

    def _raise_failure(self, item: pa.RecordBatch | Abandoned | None) -> None:
        if self._writing is not None and not isinstance(item, Abandoned):
            self._writing.result()

    def _write(self) -> list[FragmentMetadata]:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        written: list[FragmentMetadata] = write_fragments(
            reader, self._location, mode="append", max_rows_per_file=self._max_rows
        )
        return written

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            item = self._queue.get()
            if item is None:
                return
            if isinstance(item, Abandoned):
                raise item
            yield item.cast(self._schema) if item.schema != self._schema else item


def with_row_ids(fragment: FragmentMetadata, row_ids: npt.NDArray[np.uint64]) -> dict[str, Any]:
    """The JSON of a new fragment whose rows keep these existing ids."""
    described = _as_json(fragment)
    described["row_id_meta"] = {"Inline": list(encoded_row_ids(row_ids))}
    return described


def encoded_row_ids(row_ids: npt.NDArray[np.uint64]) -> bytes:
    """Lance's message for a sequence of ids: segments of ranges, or of offsets from the smallest id."""
    cuts = np.flatnonzero(np.diff(row_ids) != 1) + 1
    if len(cuts) < len(row_ids) // MIN_IDS_PER_RUN:
        return b"".join(_range_segment(ids) for ids in np.split(row_ids, cuts))
    parts = np.split(row_ids, range(IDS_PER_SEGMENT, len(row_ids), IDS_PER_SEGMENT))
    return b"".join(_offset_segment(ids) for ids in parts)


def _range_segment(ids: npt.NDArray[np.uint64]) -> bytes:
    return _message(SEGMENT, _message(RANGE, _number(1, int(ids[0])) + _number(2, int(ids[-1]) + 1)))


def _offset_segment(ids: npt.NDArray[np.uint64]) -> bytes:
    smallest = ids.min()
    if int(ids.max() - smallest) >= 1 << 32:
        return b"".join(_range_segment(ids[index : index + 1]) for index in range(len(ids)))
    values = (ids - smallest).astype("<u4").tobytes()
    return _message(SEGMENT, _message(ARRAY, _message(U32, _number(1, int(smallest)) + _message(2, values))))


def with_deletions(
    fragment: FragmentMetadata, location: str, version: int, deleted: BitMap
) -> FragmentMetadata:
    """The fragment with a new deletion file; `deleted` contains all deleted offsets, old and new."""
    number = secrets.randbits(62)
    filesystem, path = open_location(f"{location}/_deletions/{fragment.id}-{version}-{number}.bin")
    filesystem.create_dir(path.rpartition("/")[0], recursive=True)
    with filesystem.open_output_stream(path) as stream:
        stream.write(deleted.serialize())
    described = _as_json(fragment)
    described["deletion_file"] = {
        "read_version": version,
        "id": number,
        "file_type": "bitmap",
        "num_deleted_rows": len(deleted),
        "base_id": None,
    }
    return FragmentMetadata.from_json(json.dumps(described))


def _as_json(fragment: FragmentMetadata) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(json.dumps(fragment.to_json()))
    return described


def _message(field: int, content: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(content)) + content


def _number(field: int, value: int) -> bytes:
    return bytes([field << 3]) + _varint(value) if value else b""


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


class ColumnFileWriter:
    """Writes values in ascending physical order, with nulls for deleted rows (`gaps`)."""

    def __init__(
        self, dataset: lance.LanceDataset, location: str, physical_rows: int, columns: pa.Schema
    ) -> None:
        self.path = f"{uuid4()}.lance"
        self._schema = columns
        self._physical_rows = physical_rows
        self._next = 0
        self.gaps = BitMap()
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
            self.gaps |= BitMap(self._next + np.flatnonzero(indices < 0).astype(np.uint32))
            columns = [values.take(positions) for values in columns]
        self._write(columns)
        self._next = int(offsets[-1]) + 1

    def _write(self, columns: Sequence[pa.Array]) -> None:
        batch = pa.record_batch(list(columns), schema=self._schema)
        check_texts(batch)
        self._file.write_batch(batch)

    def _write_nulls(self, count: int) -> None:
        if count:
            self.gaps.add_range(self._next, self._next + count)
            self._write([pa.nulls(count, field.type) for field in self._schema])


def merged(current: pa.Array, positions: npt.NDArray[np.int64], values: pa.Array) -> pa.Array:
    """The current values with those at the positions replaced; works for every Arrow type."""
    order = np.arange(len(current))
    order[positions] = len(current) + np.arange(len(values))
    return pa.concat_arrays([current, values]).take(pa.array(order))


def deletions_of(fragment: lance.LanceFragment) -> str | None:
    """Names the set of deleted rows of a fragment: equal only for equal sets."""
    file = fragment.metadata.deletion_file
    return None if file is None else file.json()


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
