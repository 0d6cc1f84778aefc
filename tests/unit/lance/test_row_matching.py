"""Rows made anew are paired with those there are: by content, by place, or as the only ones of their key."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
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


# Of each chunk: its key, the title of its document, its heading and its text; where it is follows.
CHUNKS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("hi"), st.sampled_from("abcd")), max_size=12)


def chunks_of(rows: list[tuple[int, str, str]], title: str) -> pa.RecordBatch:
    """With numbers of every shape that change with the position and with the number of chunks."""
    places = [_number(rows, place) for place in range(len(rows))]
    numbers = [10 * len(rows) + place for place in places]
    return pa.record_batch(
        {
            "key": pa.array([key for key, _, _ in rows], pa.int64()),
            "place": pa.array(places, pa.int32()),
            "title": pa.array([title] * len(rows), pa.string()),
            "heading": pa.array([heading for _, heading, _ in rows], pa.string()),
            "text": pa.array([f"the text {text}" for _, _, text in rows], pa.string()),
            "offset": pa.array(numbers, pa.int64()),
            "time": pa.array(numbers, pa.duration("ms")),
            "box": pa.array([[float(n), 1.0] for n in numbers], pa.list_(pa.float32(), 2)),
            "words": pa.array(
                [[{"word": text, "start": n}] for n, (_, _, text) in zip(numbers, rows, strict=True)],
                pa.list_(pa.struct([("word", pa.string()), ("start", pa.int64())])),
            ),
        }
    )


@settings(derandomize=True)
@given(new=CHUNKS, old=CHUNKS, title=st.sampled_from(["t", "a title longer than all of the texts"]))
def test_as_many_chunks_keep_their_row_as_have_the_same_text(
    new: list[Any], old: list[Any], title: str
) -> None:
    match = match_rows(chunks_of(new, title), chunks_of(old, "t"), "key", "place")
    paired = [place for place in match.old.tolist() if place != NO_MATCH]
    assert len(paired) == len(set(paired))
    pairs = [(new[n], old[partner]) for n, partner in enumerate(match.old.tolist()) if partner != NO_MATCH]
    assert all(now[0] == then[0] for now, then in pairs)
    texts = Counter((key, text) for key, _, text in new) & Counter((key, text) for key, _, text in old)
    assert sum(now[2] == then[2] for now, then in pairs) == texts.total()


def matched(new: pa.RecordBatch, old: pa.RecordBatch) -> list[int]:
    """With the key 1 and the position of each row in its batch."""
    first, second = (
        side.append_column("key", pa.array([1] * len(side), pa.int64())).append_column(
            "place", pa.array(range(len(side)), pa.int32())
        )
        for side in (new, old)
    )
    match = match_rows(first, second, "key", "place")
    return [int(partner) for partner in match.old]


def test_a_vector_tells_chunks_apart_that_have_the_same_label() -> None:
    def tiles(*numbers: float) -> pa.RecordBatch:
        vectors = pa.array([[n, n] for n in numbers], pa.list_(pa.float32(), 2))
        return pa.record_batch(
            {"label": ["tile"] * len(numbers), "x": range(len(numbers)), "vector": vectors}
        )

    assert matched(tiles(9, 1, 2, 3), tiles(1, 2, 3)) == [NO_MATCH, 0, 1, 2]


def test_chunks_of_nothing_but_numbers_are_matched_by_position() -> None:
    def numbers(*values: int) -> pa.RecordBatch:
        return pa.record_batch({"page": values, "span": [{"start": value} for value in values]})

    assert matched(numbers(9, 11, 12), numbers(1, 2)) == [0, 1, NO_MATCH]


def test_a_new_chunk_takes_the_row_of_one_that_is_gone_and_of_no_other() -> None:
    def texts(*values: str) -> pa.RecordBatch:
        return pa.record_batch({"text": values, "offset": range(100 * len(values), 101 * len(values))})

    assert matched(texts("a", "new", "c", "d"), texts("a", "b", "c", "d", "e")) == [0, 1, 2, 3]
    assert matched(texts("new", "a", "b"), texts("a", "b")) == [NO_MATCH, 0, 1]


def test_equal_texts_are_paired_in_the_order_they_stand_in() -> None:
    old = pa.record_batch({"text": ["x", "x", "x"], "n": [20, 0, 10]})
    old = old.append_column("key", pa.array([1, 1, 1])).append_column("place", pa.array([2, 0, 1]))
    new = pa.record_batch({"text": ["new", "x", "x", "x"], "n": [5, 6, 16, 26]})
    new = new.append_column("key", pa.array([1] * 4)).append_column("place", pa.array([0, 1, 2, 3]))
    assert match_rows(new, old, "key", "place").old.tolist() == [NO_MATCH, 1, 2, 0]


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
