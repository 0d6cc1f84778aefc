"""Fingerprints tell values apart by bits and types, however these are laid out in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.lance import fingerprints as module
from tidemill.lance.fingerprints import (
    KnownResults,
    fingerprints,
    merge_segments,
    paired,
    write_segment,
)

NAN = float("nan")
DIFFERENT: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [None, 0, 1, -1]),
    (pa.uint64(), [None, 0, 2**64 - 1]),
    (pa.float64(), [None, 0.0, -0.0, 1.0, NAN]),
    (pa.float32(), [None, 0.0, -0.0, NAN]),
    (pa.float16(), [None, np.float16(0), np.float16(1)]),
    (pa.bool_(), [None, True, False]),
    (pa.string(), [None, "", "a", "b", "a" * 8, "a" * 9, "a" * 8 + "\0", "é"]),
    (pa.large_string(), [None, "", "a", "aa"]),
    (pa.binary(), [None, b"", b"\0", b"\0\0"]),
    (pa.binary(3), [None, b"abc", b"xyz"]),
    (pa.decimal128(10, 2), [None, 1, 2]),
    (pa.date32(), [None, 0, 1]),
    (pa.timestamp("us", "UTC"), [None, 0, 1]),
    (pa.time32("s"), [None, 1, 2]),
    (pa.list_(pa.int32()), [None, [], [1], [1, 2], [2, 1], [None], [0]]),
    (pa.list_(pa.float64()), [[0.0], [-0.0]]),
    (pa.list_(pa.float32(), 2), [None, [1, 2], [2, 1], [0, 0], [0, None]]),
    (pa.list_(pa.string()), [None, [], [""], ["", ""], ["a"], ["a", "b"], ["ab"]]),
    (pa.struct([("a", pa.int32()), ("b", pa.string())]), [None, {"a": 1, "b": None}, {"a": None, "b": "x"}]),
    (pa.map_(pa.string(), pa.int32()), [None, [], [("a", 1)], [("a", 2)], [("b", 1)]]),
]


@pytest.mark.parametrize(("kind", "values"), DIFFERENT, ids=lambda value: str(value)[:30])
def test_different_values_have_different_fingerprints(kind: pa.DataType, values: list[Any]) -> None:
    array = pa.array(values, kind)
    hashes = fingerprints([array])
    assert len(set(hashes.tolist())) == len(values)
    shifted = pa.array([values[-1], *values, values[0]], kind).slice(1, len(values))
    assert fingerprints([shifted]).tolist() == hashes.tolist()
    chunked = pa.chunked_array([array.slice(0, 1), array.slice(1, 0), array.slice(1)])
    assert fingerprints([chunked]).tolist() == hashes.tolist()


def test_the_type_and_the_order_of_columns_count() -> None:
    one, other = pa.array([1], pa.int32()), pa.array([1], pa.int64())
    assert fingerprints([one]) != fingerprints([other])
    first, second = pa.array([1]), pa.array([2])
    assert fingerprints([first, second]) != fingerprints([second, first])
    assert paired(fingerprints([first]), fingerprints([second])) != paired(
        fingerprints([second]), fingerprints([first])
    )


def test_no_rows_have_no_fingerprints() -> None:
    for kind, _ in DIFFERENT:
        assert len(fingerprints([pa.array([], kind)])) == 0


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 64))
def test_long_columns_are_hashed_in_pieces(values: list[bytes], piece: int) -> None:
    array = pa.array(values, pa.binary())
    whole = fingerprints([array]).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_BYTES", piece)
        assert fingerprints([array]).tolist() == whole
    assert len(set(whole)) == len(set(values))


def test_results_are_known_from_all_segments_that_are_there(tmp_path: Path) -> None:
    hashes = fingerprints([pa.array(range(100))])
    first = write_segment(str(tmp_path), hashes[:60])
    second = write_segment(str(tmp_path), hashes[50:90])
    assert first is not None
    assert second is not None
    assert write_segment(str(tmp_path), hashes[:0]) is None
    known = KnownResults([first, second, f"{tmp_path}/gone"])
    assert known.match(hashes).tolist() == [True] * 90 + [False] * 10
    assert Path(first).stat().st_size < 60 * 8 + 1024


def test_many_segments_become_one_and_the_oldest_results_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = fingerprints([pa.array(range(200))])
    paths = [write_segment(str(tmp_path), hashes[start : start + 10]) for start in range(0, 200, 10)]
    segments = [path for path in paths if path is not None]
    (merged,) = merge_segments(str(tmp_path), segments, live_rows=10)
    assert KnownResults([merged]).match(hashes).all()
    monkeypatch.setattr(module, "FEW_ENTRIES", 0)
    (merged,) = merge_segments(str(tmp_path), segments, live_rows=50)
    assert KnownResults([merged]).match(hashes).tolist() == [False] * 100 + [True] * 100
    assert merge_segments(str(tmp_path), segments[:3], live_rows=50) == tuple(segments[:3])


def test_results_that_a_later_job_has_computed_for_every_row_are_dropped_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FEW_ENTRIES", 0)
    hashes = fingerprints([pa.array(range(4_000))])
    whole = [write_segment(str(tmp_path), hashes[start : start + 1_000]) for start in range(0, 4_000, 1_000)]
    segments = [path for path in whole if path is not None]
    assert merge_segments(str(tmp_path), segments[:1], live_rows=1_000) == tuple(segments[:1])
    kept = merge_segments(str(tmp_path), segments, live_rows=1_000)
    assert kept == tuple(segments[-len(kept) :])
    assert sum(Path(path).stat().st_size for path in kept) <= 16 * 1_000 + 2_048
    # None of these has a result for every row, so that each may be the only one for some.
    assert merge_segments(str(tmp_path), segments, live_rows=1_500) == tuple(segments)
