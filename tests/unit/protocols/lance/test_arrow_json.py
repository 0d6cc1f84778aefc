"""Arrow types in JSON."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lance.schema import schema_to_json

from tidemill.protocols.lance.arrow_json import Vocabulary, is_same_type, schema_json, type_json

TYPES = [
    pa.null(),
    pa.bool_(),
    pa.int8(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.binary(7),
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time64("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns"),
    pa.duration("ms"),
    pa.decimal128(10, 2),
    pa.decimal256(20, 3),
    pa.dictionary(pa.int32(), pa.string()),
    pa.list_(pa.int32()),
    pa.large_list(pa.string()),
    pa.list_(pa.float32(), 4),
    pa.struct([pa.field("x", pa.list_(pa.int8()), nullable=False, metadata={"k": "v"})]),
]


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_the_lance_vocabulary_is_that_of_lance(data_type: pa.DataType) -> None:
    schema = pa.schema([pa.field("x", data_type)], {"m": "1"})
    assert schema_json(schema, Vocabulary.LANCE) == schema_to_json(schema)


@pytest.mark.parametrize(
    ("data_type", "expected"),
    [
        (pa.float16(), {"type": "float16"}),
        (pa.large_string(), {"type": "large_utf8"}),
        (pa.timestamp("us", "UTC"), {"type": "timestamp"}),
        (pa.time64("us"), {"type": "time64"}),
        (pa.decimal128(10, 2), {"type": "decimal128", "length": 10002}),
        (pa.binary(7), {"type": "fixed_size_binary", "length": 7}),
        (pa.dictionary(pa.int32(), pa.string()), {"type": "utf8"}),
    ],
    ids=str,
)
def test_the_specifications_vocabulary_is_that_of_its_reference_server(
    data_type: pa.DataType, expected: dict[str, Any]
) -> None:
    assert type_json(data_type, Vocabulary.NAMESPACE) == expected


@pytest.mark.parametrize("vocabulary", Vocabulary)
@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_a_type_is_recognised_in_either_vocabulary(data_type: pa.DataType, vocabulary: Vocabulary) -> None:
    assert is_same_type(type_json(data_type, vocabulary), data_type)
    assert not is_same_type(type_json(data_type, vocabulary), pa.struct([pa.field("other", pa.int8())]))


def test_a_map_has_entries() -> None:
    described = type_json(pa.map_(pa.string(), pa.int32()), Vocabulary.NAMESPACE)
    (entries,) = described["fields"]
    assert [field["name"] for field in entries["type"]["fields"]] == ["key", "value"]
