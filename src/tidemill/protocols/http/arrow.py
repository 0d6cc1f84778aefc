"""Reads Arrow IPC streams in request bodies: complete, validated, with limits."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from tidemill.errors import InvalidInput, PayloadTooLarge

# Indexes of fields in the tables of Message.fbs, as flatbuffers counts them.
MESSAGE_HEADER_TYPE: Final = 1
MESSAGE_HEADER: Final = 2
DICTIONARY_DATA: Final = 1
BATCH_BUFFERS: Final = 2
BATCH_COMPRESSION: Final = 3
DICTIONARY_BATCH: Final = 2
RECORD_BATCH: Final = 3
STORED_UNCOMPRESSED: Final = -1
VIEW_BYTES: Final = 16
END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
FILE_MAGIC: Final = b"ARROW1"
MAX_FIELDS: Final = 10_000
MAX_FIELD_NESTING: Final = 50
MAX_NAME_BYTES: Final = 4096
MAX_METADATA_BYTES: Final = 1 << 20
MAX_BATCH_ROWS: Final = 10_000_000
# Lance panics on misaligned values. In a damaged stream they can start anywhere; in a valid one they start at
# multiples of 8 bytes, which is not enough for values of 16 bytes.
ALIGNED: Final = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)
WIDELY_ALIGNED: Final = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)


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


def read_stream(body: bytes, limit_bytes: int) -> pa.RecordBatchReader:
    """Reads the rows of an IPC stream. A damaged stream is rejected as a whole."""
    if not body:
        raise InvalidInput("body", "is empty; it must be an Arrow IPC stream with at least a schema")
    if body.startswith(FILE_MAGIC):
        raise InvalidInput("body", "is an Arrow IPC file; it must be an Arrow IPC stream")
    try:
        _check_sizes(body, limit_bytes)
        return _read(body, limit_bytes)
    # Extension types are read by their own code, which may raise any of these.
    except (pa.ArrowException, OSError, EOFError, ValueError, TypeError) as error:
        raise InvalidInput("body", f"is not a complete Arrow IPC stream ({str(error)[:300]})") from error


def _check_sizes(body: bytes, limit_bytes: int) -> None:
    """Rejects a stream that would exceed the limit before any buffer is decompressed."""
    total = 0
    for size in decoded_sizes(body):
        total += size
        if total > limit_bytes:
            raise PayloadTooLarge("The decoded Arrow stream", limit_bytes)


def _read(body: bytes, limit_bytes: int) -> pa.RecordBatchReader:
    schema = pa.ipc.open_stream(pa.BufferReader(body)).schema
    _check_schema(schema)
    source = pa.BufferReader(body)
    options = WIDELY_ALIGNED if any(_has_wide_values(field.type) for field in schema) else ALIGNED
    reader = pa.ipc.open_stream(source, options=options)
    batches, total = [], 0
    for batch in reader:
        # Validate first: offsets of an unchecked batch may point anywhere.
        batch.validate(full=True)
        if batch.num_rows > MAX_BATCH_ROWS:
            raise InvalidInput(
                "body", f"has a batch of more than {MAX_BATCH_ROWS:,} rows; send smaller batches"
            )
        # Rows of nulls take no memory here, but do where they are stored.
        total += max(batch.nbytes, batch.num_rows) + sum(map(_bytes_behind_views, batch.columns))
        if total > limit_bytes:
            raise PayloadTooLarge("The decoded Arrow stream", limit_bytes)
        batches.append(batch)
    _check_end(body, source.tell())
    return pa.RecordBatchReader.from_batches(reader.schema, batches)


def _bytes_behind_views(array: pa.Array) -> int:
    """The size of what views refer to. Many can refer to the same bytes, but each value is stored."""
    data_type = array.type
    if isinstance(data_type, pa.BaseExtensionType):
        return _bytes_behind_views(array.storage)
    if pa.types.is_string_view(data_type) or pa.types.is_binary_view(data_type):
        # Each view has 16 bytes and starts with the length.
        lengths = np.frombuffer(array.buffers()[1] or b"", np.int32)[:: VIEW_BYTES // 4]
        return int(lengths[array.offset : array.offset + len(array)].sum(dtype=np.int64))
    if pa.types.is_struct(data_type):
        return sum(_bytes_behind_views(array.field(index)) for index in range(data_type.num_fields))
    return _bytes_behind_views(array.values) if hasattr(array, "values") else 0


def _check_end(body: bytes, end: int) -> None:
    """Requires the end marker. Readers do not, so a stream cut off after a batch would lose rows silently."""
    if not body[:end].endswith(END_OF_STREAM):
        raise InvalidInput("body", "is an Arrow IPC stream without its end marker; it was truncated")
    if end != len(body):
        raise InvalidInput("body", f"has {len(body) - end} extra bytes after the end of the Arrow IPC stream")


def _check_schema(schema: pa.Schema) -> None:
    """Rejects names that Lance would store but could not find again, and schemas that are too large."""
    metadata, count = _metadata_bytes(schema.metadata), 0
    level: list[tuple[str, list[pa.Field]]] = [("", list(schema))]
    for _ in range(MAX_FIELD_NESTING + 1):
        for path, fields in level:
            _check_names(path, fields)
            metadata += sum(_metadata_bytes(field.metadata) for field in fields)
            count += len(fields)
        if count > MAX_FIELDS:
            raise InvalidInput("body", f"has more than {MAX_FIELDS:,} columns, nested ones included")
        if metadata > MAX_METADATA_BYTES:
            raise InvalidInput(
                "body", f"has a schema with more than {MAX_METADATA_BYTES:,} bytes of metadata"
            )
        level = [
            (f"{path}.{field.name}".removeprefix("."), _children(field.type))
            for path, fields in level
            for field in fields
            if _children(field.type)
        ]
        if not level:
            return
    raise InvalidInput("body", f"has columns nested more than {MAX_FIELD_NESTING} levels deep")


def _check_names(path: str, fields: Iterable[pa.Field]) -> None:
    seen: set[str] = set()
    where = f"inside column {path!r:.80}" if path else "among the columns"
    for name in (field.name for field in fields):
        if not name or "`" in name or "\x00" in name or len(name.encode()) > MAX_NAME_BYTES:
            raise InvalidInput(
                "body",
                f"has the name {name!r:.80} {where};"
                f" names must have 1 to {MAX_NAME_BYTES:,} bytes and no '`' or NUL",
            )
        if name in seen:
            raise InvalidInput("body", f"has the name {name!r:.80} twice {where}")
        seen.add(name)


def _has_wide_values(data_type: pa.DataType) -> bool:
    """Whether the type has values of 16 bytes, which Rust requires to be aligned and C++ does not."""
    if isinstance(data_type, pa.BaseExtensionType):
        return _has_wide_values(data_type.storage_type)
    if pa.types.is_dictionary(data_type):
        return _has_wide_values(data_type.value_type)
    is_wide = (
        pa.types.is_decimal(data_type)
        or pa.types.is_string_view(data_type)
        or pa.types.is_binary_view(data_type)
    )
    return is_wide or any(_has_wide_values(field.type) for field in _children(data_type))


def _children(data_type: pa.DataType) -> list[pa.Field]:
    if isinstance(data_type, pa.BaseExtensionType):
        return _children(data_type.storage_type)
    if pa.types.is_dictionary(data_type):
        return _children(data_type.value_type)
    return [data_type.field(index) for index in range(data_type.num_fields)]


def _metadata_bytes(metadata: dict[bytes, bytes] | None) -> int:
    return sum(len(key) + len(value) for key, value in (metadata or {}).items())
