"""Checkpoints give back what was put in, for rows that still hold."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from tidemill.jobs.model.columns import CheckpointRef, ColumnFile
from tidemill.jobs.model.failures import RowFailure
from tidemill.lance.checkpoint_files import (
    CheckpointValues,
    CheckpointWriter,
    SavedValues,
    find_checkpoints,
    list_checkpoints,
    read_finished,
    remove_folder,
    write_checkpoint,
    write_finished,
)


def ids(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(values, dtype=np.uint64)


def by_position(saved: SavedValues) -> dict[int, Any]:
    assert saved.values is not None
    return dict(zip(saved.positions.tolist(), saved.values.to_pylist(), strict=True))


def test_values_are_found_by_row_id(tmp_path: Path) -> None:
    location = str(tmp_path / "c")
    write_checkpoint(location, 3, ids(9, 2, 5), pa.array(["nine", "two", None]))
    write_checkpoint(location, 4, ids(7), pa.array(["seven"]))
    found = list_checkpoints(location)
    assert sorted((item.version, sorted(item.rows)) for item in found) == [(3, [2, 5, 9]), (4, [7])]
    values = CheckpointValues(CheckpointRef(item.path, item.rows - BitMap64([9])) for item in found)
    saved = values.find(ids(1, 2, 5, 7, 9, 11))
    assert by_position(saved) == {1: "two", 2: None, 3: "seven"}
    assert saved.failures == ()


def test_without_checkpoints_nothing_is_found(tmp_path: Path) -> None:
    assert list_checkpoints(str(tmp_path / "never")) == []
    saved = CheckpointValues([]).find(ids(1))
    assert (len(saved.positions), saved.values) == (0, None)


def test_removing_twice_is_fine(tmp_path: Path) -> None:
    location = str(tmp_path / "c")
    write_checkpoint(location, 1, ids(1), pa.array([1]))
    remove_folder(location)
    remove_folder(location)
    assert list_checkpoints(location) == []


def test_failures_are_found_only_by_those_who_would_skip_them(tmp_path: Path) -> None:
    location = str(tmp_path / "c")
    failure = RowFailure(5, "ValueError", "no", "trace", attempts=2)
    write_checkpoint(location, 1, ids(4, 5), pa.array([40, None]), [failure])
    refs = [CheckpointRef(item.path, item.rows) for item in list_checkpoints(location)]
    saved = CheckpointValues(refs).find(ids(4, 5))
    assert (by_position(saved), saved.failures) == ({0: 40}, ())
    saved = CheckpointValues(refs, with_failures=True).find(ids(4, 5))
    assert (by_position(saved), saved.failures) == ({0: 40, 1: None}, (failure,))


def test_finished_files_are_noted_beside_the_values(tmp_path: Path) -> None:
    location = str(tmp_path / "c")
    file = ColumnFile(3, frozenset({"a"}), "f.lance", {"path": "f.lance"}, 10, BitMap64([1, 2]))
    write_finished(location, 7, [file])
    ((_, version, files),) = read_finished(location)
    assert (version, files) == (7, [file])
    assert list_checkpoints(location) == []


def test_values_are_found_by_what_they_were_computed_from(tmp_path: Path) -> None:
    location = str(tmp_path / "c")
    write_checkpoint(location, 1, ids(1, 2), pa.array(["old one", "old two"]), inputs=ids(10, 20))
    known = find_checkpoints(location)
    write_checkpoint(location, 2, ids(1, 3), pa.array(["new one", "three"]), inputs=ids(11, 30))
    refs = find_checkpoints(location, known)
    assert sorted(sorted(ref.rows) for ref in refs) == [[1, 2], [1, 3]]
    saved = CheckpointValues(refs).find(ids(1, 2, 3), ids(11, 20, 31))
    assert by_position(saved) == {0: "new one", 1: "old two"}


def test_a_failure_does_not_hide_a_value_of_the_same_row(tmp_path: Path) -> None:
    location = str(tmp_path / "c")
    failure = RowFailure(5, "ValueError", "no", "trace")
    failed = write_checkpoint(location, 1, ids(5), pa.array([None], pa.int64()), [failure], ids(7))
    right = write_checkpoint(location, 1, ids(5), pa.array([50]), inputs=ids(7))
    refs = [CheckpointRef(path, BitMap64([5])) for path in (failed, right)]
    saved = CheckpointValues(refs).find(ids(5), ids(7))
    assert (by_position(saved), saved.failures) == ({0: 50}, ())
    result = CheckpointValues(refs).find_result(5, 7)
    assert result is not None
    assert (result.failure, [part.to_pylist() for part in result.parts]) == (None, [[50]])


def test_a_value_comes_with_the_inputs_of_its_own_checkpoint(tmp_path: Path) -> None:
    location = str(tmp_path / "c")
    failure = RowFailure(5, "ValueError", "no", "trace")
    failed = write_checkpoint(location, 1, ids(5), pa.array([None], pa.int64()), [failure], ids(7))
    right = write_checkpoint(location, 2, ids(5), pa.array([50]), inputs=ids(8))
    refs = [CheckpointRef(path, BitMap64([5])) for path in (failed, right)]
    assert CheckpointValues(refs).find(ids(5)).inputs.tolist() == [8]


NUMBERS = st.lists(st.integers(0, 12), unique=True, min_size=1)


@settings(max_examples=200)
@given(st.lists(st.tuples(NUMBERS, st.booleans(), NUMBERS), max_size=3), NUMBERS)
def test_any_rows_are_found_in_any_checkpoints(
    files: list[tuple[list[int], bool, list[int]]], wanted: list[int]
) -> None:
    """Checkpoints hold rows in any order, with inputs or without; a job may use some of their rows."""
    expected: dict[int, tuple[int, int]] = {}
    with TemporaryDirectory() as location:
        refs = []
        for number, (rows, has_inputs, usable) in enumerate(files, start=1):
            inputs = ids(*(row + number for row in rows)) if has_inputs else None
            values = pa.array([100 * number + row for row in rows])
            path = write_checkpoint(location, number, ids(*rows), values, inputs=inputs)
            refs.append(CheckpointRef(path, BitMap64(rows) & BitMap64(usable)))
            for row in set(rows) & set(usable):
                expected.setdefault(row, (100 * number + row, row + number if has_inputs else 0))
        saved = CheckpointValues(refs).find(ids(*wanted))
        found = (
            {}
            if saved.values is None
            else dict(
                zip(
                    (wanted[position] for position in saved.positions),
                    zip(saved.values.to_pylist(), saved.inputs.tolist(), strict=True),
                    strict=True,
                )
            )
        )
    assert found == {row: expected[row] for row in wanted if row in expected}


def test_a_result_is_written_in_parts_and_seen_when_it_is_complete(tmp_path: Path) -> None:
    location = str(tmp_path / "c")
    for is_complete in (False, True):
        writer = CheckpointWriter(location, 1, row_id=4, inputs=9)
        writer.write(pa.array([["a"], ["b"]]))
        assert find_checkpoints(location) == []
        writer.write(pa.array([["c"]]))
        writer.finish() if is_complete else writer.abandon()
    values = CheckpointValues(find_checkpoints(location))
    assert (values.has(4), values.has(5), values.find_result(4, 8)) == (True, False, None)
    saved = values.find_result(4, 9)
    assert saved is not None
    assert [part.to_pylist() for part in saved.parts] == [[["a"], ["b"]], [["c"]]]
    assert len(list((tmp_path / "c").iterdir())) == 1
