"""Arrow types from JSON, in both vocabularies."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tidemill.errors import InvalidInput
from tidemill.protocols.lance.arrow_json import Vocabulary, parse_type, type_json

TYPES = [
    pa.null(),
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(16)),
    *(pa.date32(), pa.date64()),
    *(pa.decimal128(10, 2), pa.decimal256(40, 5)),
    pa.list_(pa.int64()),
    pa.large_list(pa.string()),
    pa.list_(pa.float32(), 16),
    pa.list_(pa.list_(pa.float16(), 4)),
    pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.struct([("c", pa.string())]))]),
    pa.map_(pa.string(), pa.int64()),
]
# Their units and zones are lost in the specification's names.
LANCE_TYPES = [
    *(pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.timestamp("s", "+02:00"), pa.duration("ms")),
    *(pa.time32("s"), pa.time64("ns"), pa.dictionary(pa.int8(), pa.string())),
]


@pytest.mark.parametrize("data_type", TYPES, ids=str)
@pytest.mark.parametrize("vocabulary", Vocabulary)
def test_what_we_write_is_read_back(data_type: pa.DataType, vocabulary: Vocabulary) -> None:
    assert parse_type(type_json(data_type, vocabulary), "data_type").equals(data_type)


@pytest.mark.parametrize("data_type", LANCE_TYPES, ids=str)
def test_units_are_read_where_the_vocabulary_has_them(data_type: pa.DataType) -> None:
    assert parse_type(type_json(data_type, Vocabulary.LANCE), "data_type").equals(data_type)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("int64", pa.int64()),
        ("timestamp", pa.timestamp("us")),
        ({"type": "fixed_size_list:float:8"}, pa.list_(pa.float32(), 8)),
        ({"type": "fixed_size_binary:4"}, pa.binary(4)),
        ({"type": "utf8", "length": None}, pa.string()),
    ],
)
def test_other_writings_are_understood(given: Any, wanted: pa.DataType) -> None:
    assert parse_type(given, "data_type").equals(wanted)


@pytest.mark.parametrize(
    "given",
    [
        7,
        None,
        {},
        {"type": 7},
        "zork",
        "timestamp:parsec:UTC",
        "decimal:128",
        {"type": "decimal128"},
        {"type": "decimal128", "length": 999_000},
        {"type": "list"},
        {"type": "list", "fields": [7]},
        {"type": "list", "fields": []},
        {"type": "struct", "fields": [{"type": "int64"}]},
        {"type": "fixed_size_list", "fields": [{"name": "item", "type": "float32"}]},
        {"type": "fixed_size_list", "length": -1, "fields": [{"name": "item", "type": "float32"}]},
        {"type": "struct", "fields": [{"name": "a", "type": "int64", "metadata": {"a": 1}}]},
        {"type": "map", "fields": [{"name": "entries", "type": "int64"}]},
    ],
    ids=repr,
)
def test_what_is_no_type_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^data_type: "):
        parse_type(given, "data_type")


def test_a_type_nested_without_end_is_refused() -> None:
    given: Any = "int64"
    for _ in range(100):
        given = {"type": "list", "fields": [{"name": "item", "type": given}]}
    with pytest.raises(InvalidInput, match="nested"):
        parse_type(given, "data_type")
