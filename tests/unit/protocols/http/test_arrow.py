"""Arrow bodies: whole ones are read, all others refused."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.protocols.stand import SCHEMA, some_rows, stream
from tidemill.errors import InvalidInput, PayloadTooLarge
from tidemill.protocols.http.arrow import END_OF_STREAM, read_stream
from tidemill.protocols.http.arrow_sizes import decoded_sizes

LIMIT = 1 << 20


def compressed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("write", [stream, compressed])
def test_rows_come_out_as_they_went_in(write: Callable[[pa.Table], bytes]) -> None:
    assert read_stream(write(some_rows(1000)), LIMIT).read_all() == some_rows(1000)


def test_dictionaries_are_read_too() -> None:
    table = pa.table({"word": pa.array(["a", "b", "a"]).dictionary_encode()})
    assert read_stream(compressed(table), LIMIT).read_all() == table


def test_a_stream_without_batches_is_an_empty_table() -> None:
    rows = read_stream(stream(SCHEMA.empty_table()), LIMIT).read_all()
    assert rows.schema == SCHEMA
    assert rows.num_rows == 0


def test_no_bytes_at_all_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^body: is empty"):
        read_stream(b"", LIMIT)


@given(st.integers(min_value=1, max_value=len(stream(some_rows())) - 1))
def test_a_stream_cut_short_anywhere_is_refused(length: int) -> None:
    with pytest.raises(InvalidInput, match=r"^body: "):
        read_stream(stream(some_rows())[:length], LIMIT)


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^body: "):
        read_stream(body, LIMIT)


@given(st.data())
def test_a_damaged_stream_is_read_or_refused_but_never_breaks_the_reader(data: st.DataObject) -> None:
    body = bytearray(compressed(some_rows(50)))
    for position in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=4)):
        body[position] = data.draw(st.integers(0, 255))
    try:
        read_stream(bytes(body), LIMIT)
    except (InvalidInput, PayloadTooLarge):
        return


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(InvalidInput, match="after the end"):
        read_stream(stream(some_rows()) + stream(some_rows()), LIMIT)


def test_a_file_is_refused_with_a_hint() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_table(some_rows())
    with pytest.raises(InvalidInput, match="file"):
        read_stream(bytes(sink.getvalue()), LIMIT)


def test_text_that_is_no_text_is_refused() -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
    )
    with pytest.raises(InvalidInput, match="body"):
        read_stream(stream(pa.table({"text": bad})), LIMIT)


def test_many_rows_of_nothing_are_too_much() -> None:
    with pytest.raises(PayloadTooLarge):
        read_stream(stream(pa.table({"nothing": pa.nulls(LIMIT + 1)})), LIMIT)


def test_what_grows_too_large_is_refused_before_it_is_decompressed() -> None:
    body = compressed(pa.table({"zero": pa.array([0] * LIMIT, pa.int64())}))
    assert len(body) < LIMIT / 10
    assert sum(decoded_sizes(body)) >= 8 * LIMIT
    with pytest.raises(PayloadTooLarge):
        read_stream(body, LIMIT)


def test_the_end_marker_is_what_writers_write() -> None:
    assert stream(some_rows()).endswith(END_OF_STREAM)
