"""Values are compared place by place, whatever their type."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from tidemill.lance.changes import same_values

NESTED = pa.struct([("a", pa.list_(pa.int32())), ("b", pa.string())])
CASES = [
    (pa.int64(), [1, 2, None, None, 5], [1, 3, None, 4, None]),
    (pa.float64(), [1.0, math.nan, None, math.nan, 0.0], [1.0, 2.0, None, None, 1.0]),
    (pa.float16(), [1.0, 2.0, None, None, 0.0], [1.0, 3.0, None, 4.0, None]),
    (pa.string(), ["a", "b", None, "", None], ["a", "c", None, None, "e"]),
    (pa.list_(pa.float32(), 2), [[1, 2], [3, 4], None, None, [5, 6]], [[1, 2], [3, 5], None, [1, 1], None]),
    (
        NESTED,
        [{"a": [1], "b": "x"}, {"a": [1], "b": None}, None, None, {"a": [], "b": ""}],
        [{"a": [1], "b": "x"}, {"a": None, "b": None}, None, {"a": [], "b": ""}, None],
    ),
]


@pytest.mark.parametrize(("kind", "first", "second"), CASES, ids=lambda case: str(case)[:20])
def test_only_the_places_that_differ_differ(
    kind: pa.DataType, first: list[object], second: list[object]
) -> None:
    found = same_values(pa.array(first, kind), pa.array(second, kind))
    assert found.tolist() == [True, False, True, False, False]


def test_not_a_number_is_the_same_as_itself() -> None:
    values = pa.array([math.nan, 1.0])
    assert same_values(values, pa.array([math.nan, 2.0])).tolist() == [True, False]


def test_values_of_other_types_differ() -> None:
    assert same_values(pa.array([1], pa.int32()), pa.array([1], pa.int64())).tolist() == [False]
