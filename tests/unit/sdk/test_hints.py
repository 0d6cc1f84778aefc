"""Type hints as Arrow types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict

import numpy as np
import pyarrow as pa
import pytest

from tidemill.sdk.hints import UnreadableHint, arrow_type, has_dataclass, row_schema

Metres = NewType("Metres", float)


class Point(NamedTuple):
    x: float
    label: str | None


@dataclass
class Box:
    corner: Point
    sides: list[int]


class Line(TypedDict):
    number: int
    text: str


POINT = pa.struct([("x", pa.float64()), ("label", pa.string())])


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (bool, pa.bool_()),
        (int, pa.int64()),
        (float, pa.float64()),
        (str, pa.string()),
        (bytes, pa.binary()),
        (datetime, pa.timestamp("us")),
        (date, pa.date32()),
        (time, pa.time64("us")),
        (timedelta, pa.duration("us")),
        (np.float32, pa.float32()),
        (np.uint8, pa.uint8()),
        (int | None, pa.int64()),
        (Optional[str], pa.string()),  # noqa: UP045  # the older spelling has to work too
        (list[float], pa.list_(pa.float64())),
        (list[list[np.int16]], pa.list_(pa.list_(pa.int16()))),
        (Sequence[str], pa.list_(pa.string())),
        (tuple[int, ...], pa.list_(pa.int64())),
        (Literal["a", "b"], pa.string()),
        (Metres, pa.float64()),
        (Annotated[list[float], pa.list_(pa.float32(), 4)], pa.list_(pa.float32(), 4)),
        (Annotated[int, "a count"], pa.int64()),
        (pa.float16(), pa.float16()),
        (Point, POINT),
        (Box, pa.struct([("corner", POINT), ("sides", pa.list_(pa.int64()))])),
        (Line, pa.struct([("number", pa.int64()), ("text", pa.string())])),
    ],
)
def test_a_readable_hint_has_one_arrow_type(hint: Any, expected: pa.DataType) -> None:
    assert arrow_type(hint, globals()) == expected


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (Decimal, "decimal128"),
        (dict, "does not say of what"),
        (list, "does not say of what"),
        (np.ndarray, "does not say of what"),
        (int | str, "several types"),
        (Literal["a", 1], "several types"),
        (tuple[int, str], "no Arrow type"),
        (Any, "no Arrow type"),
        (object, "no Arrow type"),
    ],
)
def test_an_unreadable_hint_says_what_would_be_right(hint: Any, said: str) -> None:
    with pytest.raises(UnreadableHint, match=said):
        arrow_type(hint, {})


def test_rows_get_the_columns_of_the_named_tuple() -> None:
    assert row_schema(Iterator[Point], globals()) == pa.schema(list(POINT))


def test_rows_get_the_columns_of_the_typed_dict() -> None:
    assert row_schema(list[Line], globals()).names == ["number", "text"]


@pytest.mark.parametrize("hint", [Iterator[int], int, Iterator, Iterator[dict[str, int]]])
def test_rows_without_named_columns_are_refused(hint: Any) -> None:
    with pytest.raises(UnreadableHint):
        row_schema(hint, {})


def test_dataclasses_are_found_at_any_depth() -> None:
    assert has_dataclass(list[Box] | None)
    assert not has_dataclass(list[Point])
