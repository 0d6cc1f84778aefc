"""Arrow streams that arrive as request bodies: read whole, checked, bounded."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidemill.errors import InvalidInput, PayloadTooLarge
from tidemill.protocols.http.arrow_sizes import decoded_sizes

END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
FILE_MAGIC: Final = b"ARROW1"


def read_stream(body: bytes, limit_bytes: int) -> pa.RecordBatchReader:
    """The rows of an IPC stream; nothing of a damaged one is given out."""
    if not body:
        raise InvalidInput("body", "is empty; it has to be an Arrow IPC stream, which has a schema at least")
    if body.startswith(FILE_MAGIC):
        raise InvalidInput("body", "is an Arrow IPC file; it has to be an Arrow IPC stream")
    try:
        _check_sizes(body, limit_bytes)
        return _read(body, limit_bytes)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InvalidInput("body", f"is not a whole Arrow IPC stream ({str(error)[:300]})") from error


def _check_sizes(body: bytes, limit_bytes: int) -> None:
    """Refuses what would grow beyond the limit before a single buffer is decompressed."""
    total = 0
    for size in decoded_sizes(body):
        total += size
        if total > limit_bytes:
            raise PayloadTooLarge("The decoded Arrow stream", limit_bytes)


def _read(body: bytes, limit_bytes: int) -> pa.RecordBatchReader:
    source = pa.BufferReader(body)
    reader = pa.ipc.open_stream(source)
    batches, total = [], 0
    for batch in reader:
        # Before anything else looks at it: offsets of an unchecked batch may point anywhere.
        batch.validate(full=True)
        # A row of nulls takes no memory here and some wherever it goes.
        total += max(batch.nbytes, batch.num_rows)
        if total > limit_bytes:
            raise PayloadTooLarge("The decoded Arrow stream", limit_bytes)
        batches.append(batch)
    _check_end(body, source.tell())
    return pa.RecordBatchReader.from_batches(reader.schema, batches)


def _check_end(body: bytes, end: int) -> None:
    """Readers take a missing end marker for the end: rows cut off after a whole batch would go unnoticed."""
    if not body[:end].endswith(END_OF_STREAM):
        raise InvalidInput("body", "is an Arrow IPC stream without its end marker; it was cut short")
    if end != len(body):
        raise InvalidInput(
            "body", f"goes on for {len(body) - end} bytes after the end of the Arrow IPC stream"
        )
