"""Types in the signatures of lancedb's functions."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lancedb.functions import _canonical_arrow_type

from tidemill.errors import InvalidInput, Unsupported
from tidemill.protocols.lance.lancedb_functions import function_type

ITEM = pa.field("item", pa.float32(), nullable=False)


@pytest.mark.parametrize(
    "data_type",
    [
        pa.bool_(),
        pa.uint8(),
        pa.float16(),
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.date32(),
        pa.list_(ITEM),
        pa.large_list(ITEM),
        pa.list_(ITEM, 4),
        pa.list_(pa.field("item", pa.list_(ITEM, 2), nullable=False)),
        pa.list_(pa.int32()),
        pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.list_(pa.string()), nullable=False)]),
    ],
    ids=str,
)
def test_a_type_is_read_as_the_client_writes_it(data_type: pa.DataType) -> None:
    assert function_type(_canonical_arrow_type(data_type), "arrow_type").equals(data_type)


@pytest.mark.parametrize(
    "text", ["", "list", "list<>", "list<x>", "fixed_size_list<int8>", "fixed_size_list<int8, 0>", "{", "{}"]
)
def test_a_type_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^arrow_type: "):
        function_type(text, "arrow_type")


def test_blobs_are_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="blobs"):
        function_type("blob_v2", "arrow_type")
