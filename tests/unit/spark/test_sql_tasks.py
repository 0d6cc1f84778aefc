"""Values keep what they are in the types of a table."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidemill.spark.views.sql import cast_values

LISTS = pa.list_(pa.float32())
VECTORS = pa.list_(pa.float32(), 2)


@pytest.mark.parametrize(
    "values",
    [[], [None], [None, None], [[1.0, 2.0]], [None, [1.0, 2.0], None, [3.0, None]], [[1.0, 2.0], None]],
)
def test_lists_become_vectors(values: list[Any]) -> None:
    found = cast_values(pa.array(values, LISTS), VECTORS)
    found.validate(full=True)
    assert found.type == VECTORS
    assert found.to_pylist() == values
    assert cast_values(pa.array([[9.0], *values], LISTS)[1:], VECTORS).to_pylist() == values


def test_a_list_of_another_length_does_not_fit() -> None:
    with pytest.raises(ValueError, match="does not have the length 2"):
        cast_values(pa.array([[1.0, 2.0], [3.0]], LISTS), VECTORS)


@pytest.mark.parametrize("around", [pa.list_, pa.large_list], ids=["list", "large_list"])
def test_vectors_inside_other_values_are_found(around: Any) -> None:
    values: list[Any] = [
        {"vecs": [[1.0, 2.0], None], "n": 1},
        None,
        {"vecs": None, "n": 2},
        {"vecs": [], "n": None},
    ]
    before = pa.struct([("vecs", pa.list_(LISTS)), ("n", pa.int32())])
    after = pa.struct([("vecs", around(VECTORS)), ("n", pa.uint8())])
    found = cast_values(pa.array(values, before), after)
    found.validate(full=True)
    assert found.type == after
    assert found.to_pylist() == values
    assert cast_values(pa.array(values, before)[1:], after).to_pylist() == values[1:]


def test_decimals_are_moved_to_a_place_of_their_own() -> None:
    column = pa.array([Decimal("1.5"), None], pa.decimal128(5, 1))
    found = cast_values(column, column.type)
    assert found.equals(column)
    assert found.buffers()[1].address % 16 == 0
    assert found.buffers()[1].address != column.buffers()[1].address


def test_values_that_would_change_do_not_fit() -> None:
    with pytest.raises(ValueError, match="not in range"):
        cast_values(pa.array([300], pa.int32()), pa.uint8())
