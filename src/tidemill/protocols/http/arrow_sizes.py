"""Reads the decompressed sizes of the batches of an Arrow IPC stream from their headers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

# Indexes of fields in the tables of Message.fbs, as flatbuffers counts them.
MESSAGE_HEADER_TYPE: Final = 1
MESSAGE_HEADER: Final = 2
DICTIONARY_DATA: Final = 1
BATCH_BUFFERS: Final = 2
BATCH_COMPRESSION: Final = 3
DICTIONARY_BATCH: Final = 2
RECORD_BATCH: Final = 3
STORED_UNCOMPRESSED: Final = -1


def decoded_sizes(body: bytes) -> Iterator[int]:
    """The decompressed size of each batch; raises ArrowInvalid for invalid headers."""
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(body)):
        try:
            yield _decoded_size(message.metadata.to_pybytes(), message.body)
        except struct.error as error:
            raise pa.ArrowInvalid(f"a message header points outside itself: {error}") from error


def _decoded_size(header: bytes, body: pa.Buffer | None) -> int:
    table = _Table(header, _offset(header, 0))
    kind = table.byte(MESSAGE_HEADER_TYPE)
    if kind not in (DICTIONARY_BATCH, RECORD_BATCH) or body is None:
        return 0
    batch = table.table(MESSAGE_HEADER)
    if kind == DICTIONARY_BATCH and batch is not None:
        batch = batch.table(DICTIONARY_DATA)
    if batch is None:
        return 0
    if not batch.has(BATCH_COMPRESSION):
        return int(body.size)
    view = memoryview(body)
    return sum(_buffer_size(view, offset, length) for offset, length in batch.pairs(BATCH_BUFFERS))


def _buffer_size(body: memoryview, offset: int, length: int) -> int:
    """The size of a buffer. A compressed buffer starts with its decompressed length."""
    if length == 0:
        return 0
    (size,) = struct.unpack_from("<q", body, _inside(offset))
    if size < STORED_UNCOMPRESSED:
        raise pa.ArrowInvalid("a compressed buffer has a negative size")
    return length if size == STORED_UNCOMPRESSED else int(size)


class _Table:
    """A flatbuffers table. A table of offsets in front of it locates its fields."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position
        (back,) = struct.unpack_from("<i", data, _inside(position))
        self._fields = _inside(position - back)
        (self._fields_size,) = struct.unpack_from("<H", data, self._fields)

    def has(self, field: int) -> bool:
        return self._find(field) is not None

    def byte(self, field: int) -> int:
        position = self._find(field)
        return 0 if position is None else self._data[position] if position < len(self._data) else 0

    def table(self, field: int) -> _Table | None:
        position = self._find(field)
        return None if position is None else _Table(self._data, _offset(self._data, position))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of structs of two 64-bit integers."""
        position = self._find(field)
        if position is None:
            return
        start = _offset(self._data, position)
        (count,) = struct.unpack_from("<I", self._data, start)
        for index in range(count):
            first, second = struct.unpack_from("<qq", self._data, start + 4 + 16 * index)
            yield first, second

    def _find(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._fields_size:
            return None
        (offset,) = struct.unpack_from("<H", self._data, self._fields + entry)
        return self._position + offset if offset else None


def _offset(data: bytes, position: int) -> int:
    (offset,) = struct.unpack_from("<I", data, position)
    return _inside(position + int(offset))


def _inside(position: int) -> int:
    """Rejects negative offsets, which `struct` would count from the end."""
    if position < 0:
        raise struct.error("negative offset")
    return position
