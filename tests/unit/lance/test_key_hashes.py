"""Keys are equal exactly when the values are, however these are stored."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.lance.key_hashes import key_array

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
SMALL_TEXT = st.none() | st.text("ab\0é", max_size=4)
SMALL_NUMBER = st.none() | st.integers(-3, 3)


def keys(values: list[Any], kind: pa.DataType) -> list[int]:
    return [int(key) for key in key_array([pa.array(values, kind)])]


@settings(deadline=None)
@given(st.lists(st.tuples(SMALL_NUMBER, SMALL_TEXT), min_size=1))
def test_rows_have_equal_keys_exactly_when_their_values_are_equal(rows: list[tuple[Any, Any]]) -> None:
    numbers, texts = zip(*rows, strict=True)
    found = key_array([pa.array(numbers, pa.int32()), pa.array(texts, pa.string())]).tolist()
    assert [left == right for left, right in product(found, found)] == [
        left == right for left, right in product(rows, rows)
    ]


@settings(deadline=None)
@given(st.lists(SMALL_TEXT), st.integers(0, 5))
def test_chunks_do_not_matter(texts: list[str | None], cut: int) -> None:
    whole = pa.array(texts, pa.string())
    chunked = pa.chunked_array([whole[:cut], whole[cut:]])
    assert key_array([chunked]).tolist() == key_array([whole]).tolist()


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_the_width_of_an_integer_does_not_matter(kind: pa.DataType) -> None:
    assert keys([0, 1, 127, None], kind) == keys([0, 1, 127, None], pa.int64())


def test_negative_integers_are_the_same_in_every_width() -> None:
    assert keys([-1, -128], pa.int8()) == keys([-1, -128], pa.int64())


@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_the_type_of_a_text_does_not_matter(kind: pa.DataType) -> None:
    values = ["", "a", None, "日本", "a"]
    assert keys(values, kind) == keys(values, pa.string())


def test_dictionaries_that_hold_nothing_or_null_have_keys() -> None:
    indices = pa.array([0, 1, None], pa.int32())
    odd = pa.DictionaryArray.from_arrays(indices, pa.array(["a", None]))
    assert key_array([odd]).tolist() == keys(["a", None, None], pa.string())
    assert keys([None, None], pa.dictionary(pa.int8(), pa.string())) == keys([None, None], pa.string())


def test_bytes_dates_and_times_have_keys_of_their_values() -> None:
    assert keys([b"ab", None], pa.large_binary()) == keys([b"ab", None], pa.binary())
    assert keys([b"ab"], pa.binary(2)) == keys([b"ab"], pa.binary())
    assert keys([date(2024, 2, 29)], pa.date64()) == keys([date(2024, 2, 29)], pa.date32())
    moment = [datetime(2024, 2, 29, 12, 30)]  # noqa: DTZ001 (a time without a zone is what is stored)
    units = [keys(moment, pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")]
    assert units == [units[0]] * 4
    assert len(set(keys([True, False, None], pa.bool_()))) == 3


def test_the_order_of_columns_matters() -> None:
    left, right = pa.array([1]), pa.array([2])
    assert key_array([left, right]).tolist() != key_array([right, left]).tolist()


def test_many_values_have_keys_of_their_own() -> None:
    numbers = pa.array(np.arange(100_000))
    texts = pa.array([f"user-{number}" for number in range(100_000)])
    assert len(np.unique(key_array([numbers]))) == 100_000
    assert len(np.unique(key_array([texts]))) == 100_000


def test_no_rows_have_no_keys() -> None:
    assert keys([], pa.string()) == keys([], pa.int32()) == []
    assert key_array([pa.chunked_array([], pa.string())]).tolist() == []


@pytest.mark.parametrize(
    "kind", [pa.float32(), pa.float64(), pa.list_(pa.int32()), pa.decimal128(5, 2)], ids=str
)
def test_types_without_exact_keys_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(TypeError, match="cannot be a key"):
        key_array([pa.array([None], kind)])


def test_a_key_needs_a_column() -> None:
    with pytest.raises(TypeError, match="at least one column"):
        key_array([])


def test_keys_that_views_have_stored_stay_what_they_are() -> None:
    stored = key_array([pa.array([1, None, -7]), pa.array(["a", "", None])]).tolist()
    assert stored == [18033518388291875585, 7059041156601253067, 9819920509669549051]


def test_another_process_makes_the_same_keys() -> None:
    script = (
        "import pyarrow as pa; from tidemill.lance.key_hashes import key_array;"
        "print(key_array([pa.array(['a', 'b']), pa.array([1, 2])]).tolist())"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(key_array([pa.array(["a", "b"]), pa.array([1, 2])]).tolist())
