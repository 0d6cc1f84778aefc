"""What an envelope says about calls, and what it leaves out."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from tidemill.catalog.model.functions import decode_envelope, encode_envelope, source_function
from tidemill.errors import InvalidInput

PLAIN = source_function("f", "def f(x): return x", ["x"], pa.int64(), name="f", python="3.11")


def test_time_limit_and_blobs_travel_in_the_envelope() -> None:
    function = replace(PLAIN, timeout_seconds=1.5, blob_parameters=("x",))
    assert decode_envelope(encode_envelope(function), "function") == function


def test_an_envelope_without_them_is_as_it_was() -> None:
    assert json.loads(encode_envelope(PLAIN)).keys().isdisjoint({"timeout", "blobs"})


@pytest.mark.parametrize("timeout", [0, -1, True, "1", float("inf"), float("nan")])
def test_a_time_limit_is_a_number_of_seconds(timeout: object) -> None:
    body = {**json.loads(encode_envelope(PLAIN)), "timeout": timeout}
    with pytest.raises(InvalidInput, match=r"function\.timeout"):
        decode_envelope(json.dumps(body).encode(), "function")
