"""Arrow bodies: whole ones are read, all others refused."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.protocols.stand import SCHEMA, some_rows, stream
from tidemill.errors import InvalidInput, PayloadTooLarge
from tidemill.protocols.http.arrow import (
    END_OF_STREAM,
    MAX_FIELD_NESTING,
    MAX_FIELDS,
    MAX_METADATA_BYTES,
    MAX_NAME_BYTES,
    decoded_sizes,
    read_stream,
)

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


def nested(depth: int) -> pa.DataType:
    kind: pa.DataType = pa.int8()
    for level in range(depth):
        kind = pa.struct([("inner", kind)]) if level % 2 else pa.list_(kind)
    return kind


def empty(*fields: pa.Field, metadata: dict[str, str] | None = None) -> bytes:
    return stream(pa.schema(fields, metadata=metadata).empty_table())


def test_schemas_up_to_their_limits_are_read() -> None:
    for body in (
        empty(*(pa.field(f"c{number}", pa.int8()) for number in range(MAX_FIELDS))),
        empty(pa.field("deep", nested(MAX_FIELD_NESTING))),
        empty(pa.field("x" * MAX_NAME_BYTES, pa.int8())),
        empty(pa.field("a", pa.int8()), metadata={"k": "v" * (MAX_METADATA_BYTES - 1)}),
        empty(pa.field("a", pa.struct([("a", pa.int8())])), pa.field("A", pa.int8())),
    ):
        read_stream(body, LIMIT * 8)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (empty(*(pa.field(f"c{number}", pa.int8()) for number in range(MAX_FIELDS + 1))), "more than 10,000"),
        (
            empty(pa.field("s", pa.struct([(f"c{number}", pa.int8()) for number in range(MAX_FIELDS)]))),
            "more than 10,000",
        ),
        (empty(pa.field("deep", nested(MAX_FIELD_NESTING + 1))), "nested more than"),
        (empty(pa.field("x" * (MAX_NAME_BYTES + 1), pa.int8())), "names must have"),
        (empty(pa.field("", pa.int8())), "names must have"),
        (empty(pa.field("a`b", pa.int8())), "names must have"),
        (empty(pa.field("a", pa.int8()), metadata={"k": "v" * MAX_METADATA_BYTES}), "metadata"),
        (empty(pa.field("a", pa.int8(), metadata={"k": "v" * MAX_METADATA_BYTES})), "metadata"),
        (empty(pa.field("a", pa.int8()), pa.field("a", pa.int8())), "'a' twice among the columns"),
        (
            empty(pa.field("s", pa.list_(pa.struct([("a", pa.int8()), ("a", pa.int8())])))),
            "'a' twice inside column 's",
        ),
    ],
)
def test_schemas_that_lance_could_not_live_with_are_refused(body: bytes, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_stream(body, LIMIT * 8)


@pytest.mark.parametrize(
    "kind", [pa.decimal128(20, 2), pa.decimal256(60, 2), pa.list_(pa.decimal128(20, 2)), pa.string_view()]
)
@pytest.mark.parametrize("before", range(4))
def test_wide_values_start_where_lance_can_read_them(kind: pa.DataType, before: int) -> None:
    """Lance takes them as they lie in memory and panics if they lie elsewhere."""
    table = pa.table({"a": pa.array([1] * before, pa.int64()).slice(0, 0), "wide": pa.nulls(0, kind)})
    rows = pa.table({"a": pa.array([1] * (3 + before), pa.int64()), "wide": pa.nulls(3 + before, kind)})
    for body in (stream(table), stream(rows)):
        column = read_stream(body, LIMIT).read_all()["wide"].combine_chunks()
        values = column.flatten() if pa.types.is_list(kind) else column
        buffers = [buffer for buffer in values.buffers()[1:2] if buffer is not None]
        assert all(buffer.address % 16 == 0 for buffer in buffers)


def test_an_extension_type_that_raises_is_refused() -> None:
    metadata = {"ARROW:extension:name": "arrow.fixed_shape_tensor", "ARROW:extension:metadata": "{"}
    with pytest.raises(InvalidInput, match="body"):
        read_stream(empty(pa.field("a", pa.int8(), metadata=metadata)), LIMIT)
