"""JSON, Arrow and empty responses."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pyarrow as pa
from starlette.responses import Response

ARROW_FILE: Final = "application/vnd.apache.arrow.file"
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"


def json_response(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


def empty_response() -> Response:
    return Response(b"", 200)


def arrow_stream_response(table: pa.Table) -> Response:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), 200, media_type=ARROW_STREAM)


def without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    """Removes null entries: strict clients reject null for optional fields."""
    return {key: entry for key, entry in value.items() if entry is not None}
