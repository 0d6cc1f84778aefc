"""Responses with rows as an Arrow file, spooled to memory or, if large, to disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from tempfile import SpooledTemporaryFile
from typing import Final

import pyarrow as pa
from starlette.responses import Response, StreamingResponse

from tidemill.lance.model.queries import QueryResult
from tidemill.protocols.http.limits import MIB
from tidemill.protocols.http.responses import ARROW_FILE

IN_MEMORY_BYTES: Final = 16 * MIB
CHUNK_BYTES: Final = MIB


def arrow_file_response(result: QueryResult) -> Response:
    """Reads all rows before the response starts, so that an error is not a response that breaks off."""
    with ExitStack() as stack:
        spool = stack.enter_context(SpooledTemporaryFile(max_size=IN_MEMORY_BYTES))
        _write(result, spool)
        size = spool.tell()
        spool.seek(0)
        if size <= IN_MEMORY_BYTES:
            return Response(spool.read(), media_type=ARROW_FILE)
        stack.pop_all()
    return StreamingResponse(_chunks(spool), media_type=ARROW_FILE, headers={"content-length": str(size)})


def _write(result: QueryResult, spool: SpooledTemporaryFile[bytes]) -> None:
    # A file has one dictionary per column, but batches may have different ones.
    options = pa.ipc.IpcWriteOptions(unify_dictionaries=True)
    with pa.ipc.new_file(pa.PythonFile(spool, "w"), result.schema, options=options) as writer:
        if any(_has_dictionary(field.type) for field in result.schema):
            writer.write_table(result.to_table())
        else:
            for batch in result.batches:
                writer.write_batch(batch)


def _has_dictionary(data_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(data_type):
        return True
    return any(_has_dictionary(data_type.field(index).type) for index in range(data_type.num_fields))


def _chunks(spool: SpooledTemporaryFile[bytes]) -> Iterator[bytes]:
    with spool:
        while chunk := spool.read(CHUNK_BYTES):
            yield chunk
