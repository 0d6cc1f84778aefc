"""Bodies that are small on the wire and large in memory."""

from __future__ import annotations

import httpx
import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import RunningServer

ATTACK_CLASS = "bodies that grow"
VALUE_BYTES = 1 << 20
ROWS = 20_000


def views_of_one_value() -> pa.Array:
    """Twenty thousand texts of one megabyte in one megabyte."""
    views = np.zeros((ROWS, 4), np.int32)
    views[:, 0] = VALUE_BYTES
    views[:, 1] = np.frombuffer(b"xxxx", np.int32)[0]
    buffers = [None, pa.py_buffer(views.tobytes()), pa.py_buffer(b"x" * VALUE_BYTES)]
    return pa.Array.from_buffers(pa.string_view(), ROWS, buffers)


def nested(array: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, *range(1, ROWS + 1)], array)], ["l"])


@pytest.mark.parametrize("is_nested", [False, True])
def test_texts_that_share_their_bytes_do_not_kill_the_server(
    server: RunningServer, namespace: str, *, is_nested: bool
) -> None:
    array = views_of_one_value()
    batch = pa.record_batch({"t": nested(array) if is_nested else array})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = sink.getvalue().to_pybytes()
    assert len(body) < 4 * VALUE_BYTES
    response = httpx.post(
        f"{server.url}/v1/table/{namespace}$bomb/create", content=body, timeout=60, trust_env=False
    )
    assert response.status_code == 413
    assert server.process.poll() is None
