"""Rows made anew are paired with those there are: by content, by place, or as the only ones of their key."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.lance.row_matching import NO_MATCH, match_rows, row_hashes

CELLS = st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", None]), st.sampled_from([[], [1.5], None]))
ROWS = st.lists(CELLS, max_size=12)
SCHEMA = pa.schema([("key", pa.int64()), ("text", pa.string()), ("vector", pa.list_(pa.float32()))])


def batch_of(rows: list[Any]) -> pa.RecordBatch:
    columns = [[row[number] for row in rows] for number in range(3)]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


@given(new=ROWS, old=ROWS)
def test_as_many_rows_stay_as_there_are_on_both_sides(new: list[Any], old: list[Any]) -> None:
    match = match_rows(batch_of(new), batch_of(old), "key", None)
    paired = [place for place in match.old.tolist() if place != NO_MATCH]
    assert len(paired) == len(set(paired))
    for place, (partner, is_same) in enumerate(zip(match.old, match.is_same, strict=True)):
        if partner != NO_MATCH:
            assert new[place][0] == old[partner][0]
            assert is_same == (new[place] == old[partner])
    both = Counter(map(repr, new)) & Counter(map(repr, old))
    assert match.is_same.sum() == both.total()


@given(new=ROWS, old=ROWS)
def test_a_numbered_row_stays_where_it_is_or_is_moved_with_its_content(
    new: list[Any], old: list[Any]
) -> None:
    places = [pa.array([_number(rows, n) for n in range(len(rows))], pa.int64()) for rows in (new, old)]
    first, second = (
        batch_of(rows).append_column("place", numbers)
        for rows, numbers in zip((new, old), places, strict=True)
    )
    match = match_rows(first, second, "key", "place")
    for n, (partner, is_same) in enumerate(zip(match.old.tolist(), match.is_same.tolist(), strict=True)):
        if partner != NO_MATCH:
            assert new[n][0] == old[partner][0]
        if is_same:
            assert (new[n], places[0][n]) == (old[partner], places[1][partner])
    counts = Counter(map(repr, new)) & Counter(map(repr, old))
    kept = sum(partner != NO_MATCH and new[n] == old[partner] for n, partner in enumerate(match.old.tolist()))
    assert kept == counts.total()


def _number(rows: list[Any], place: int) -> int:
    return sum(row[0] == rows[place][0] for row in rows[:place])


def test_the_only_row_of_a_key_is_the_same_row_with_other_values() -> None:
    match = match_rows(batch_of([(1, "a", None)]), batch_of([(2, "a", None), (1, "b", None)]), "key", None)
    assert (match.old.tolist(), match.is_same.tolist()) == ([1], [False])


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1.0, float("nan"), None, 2.0]),
        pa.array([[1.0, 2.0], [2.0, 1.0], None, [1.0, 3.0]], pa.list_(pa.float32(), 2)),
        pa.array([["a"], ["a", "b"], None, []], pa.list_(pa.string())),
        pa.array([{"x": 1, "y": None}, {"x": None, "y": 1}, None, {"x": 1, "y": 1}]),
        pa.array([b"a", b"", None, b"ab"]),
        pa.array([[("k", 1)], [("k", 2)], None, []], pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda values: str(values.type),
)
def test_different_values_of_every_type_have_different_hashes(values: pa.Array) -> None:
    batch = pa.record_batch([values], names=["v"])
    hashes = row_hashes(batch, ["v"]).tolist()
    assert len(set(hashes)) == 4
    shifted = pa.record_batch([pa.concat_arrays([values.slice(3), values])], names=["v"]).slice(1)
    assert row_hashes(shifted, ["v"]).tolist() == hashes
