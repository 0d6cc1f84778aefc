"""Functions bound to columns, in the form requests have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from tidemill.sdk.definitions import column_entry, struct_outputs
from tidemill.sdk.functions import chunker, udf


class Box(NamedTuple):
    width: int
    height: int


@dataclass
class Size:
    width: int
    height: int


@udf
def box(image: bytes) -> Box:
    return Box(1, 2)


@udf
def size(image: bytes) -> Size:
    return Size(1, 2)


@udf(output=pa.struct([("width", pa.int16()), ("height", pa.int16())]))
def sides(image: bytes) -> Any:
    return {"width": 1, "height": 2}


@udf
def area(image: bytes) -> int:
    return 2


@chunker
def tiles(image: bytes) -> Iterator[Box]:
    yield Box(1, 2)


@pytest.mark.parametrize("function", [box, size, sides], ids=lambda function: function.name)
def test_named_tuples_dataclasses_and_structs_fill_several_columns(function: Any) -> None:
    assert struct_outputs({"w": "width"}, function) == {"w": "width"}


@pytest.mark.parametrize(
    ("columns", "outputs"),
    [
        (["width", "height"], {"width": "width", "height": "height"}),
        (["height", "width"], {"height": "height", "width": "width"}),
        (("height",), {"height": "height"}),
        (["w", "h"], {"w": "width", "h": "height"}),
    ],
)
def test_names_alone_are_fields_or_stand_in_their_order(columns: Any, outputs: dict[str, str]) -> None:
    assert struct_outputs(columns, box) == outputs


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["w"], "neither fields of what box returns"),
        (["height", "w"], "neither fields of what box returns"),
        (["w", "w"], "a column is named twice: w, w"),
        ({"w": "depth"}, "'w' takes the field 'depth', which box does not return; it has width, height"),
    ],
)
def test_columns_that_could_be_mistaken_are_refused(columns: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        struct_outputs(columns, box)


@pytest.mark.parametrize("columns", ["width", [], {}])
def test_no_columns_at_all_are_refused(columns: Any) -> None:
    with pytest.raises(TypeError, match="a dict"):
        struct_outputs(columns, box)


@pytest.mark.parametrize("function", [area, tiles], ids=lambda function: function.name)
def test_only_a_struct_can_be_taken_apart(function: Any) -> None:
    with pytest.raises(TypeError, match="does not return a struct; to fill several columns"):
        struct_outputs(["width"], function)


def test_every_column_says_which_field_it_takes() -> None:
    entry = column_entry({"w": "width", "h": "height"}, box, ["photo"])
    assert entry["input_columns"] == ["photo"]
    assert entry["outputs"] == [
        {"column": "w", "struct_field": "width", "nullable": True},
        {"column": "h", "struct_field": "height", "nullable": True},
    ]
    assert "auto_backfill" not in entry


def test_inputs_have_to_fit_and_rows_are_no_values() -> None:
    with pytest.raises(ValueError, match="area takes image; inputs= names 2"):
        column_entry({"a": ""}, area, ["x", "y"])
    with pytest.raises(TypeError, match=r"use table\.chunk\(tiles\) for a view"):
        column_entry({"a": ""}, tiles, None)
