"""Checkpoints give back what was put in, for rows that still hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.jobs.model.stages import CheckpointRef
from tidemill.lance.checkpoints import (
    CheckpointValues,
    list_checkpoints,
    remove_checkpoints,
    write_checkpoint,
)


def ids(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(values, dtype=np.uint64)


def test_values_are_found_by_row_id(tmp_path: Path) -> None:
    location = str(tmp_path / "c")
    write_checkpoint(location, 3, ids(9, 2, 5), pa.array(["nine", "two", None]))
    write_checkpoint(location, 4, ids(7), pa.array(["seven"]))
    found = list_checkpoints(location)
    assert sorted((item.version, sorted(item.rows)) for item in found) == [(3, [2, 5, 9]), (4, [7])]
    values = CheckpointValues(CheckpointRef(item.path, item.rows - BitMap64([9])) for item in found)
    positions, array = values.find(ids(1, 2, 5, 7, 9, 11))
    assert array is not None
    assert (positions.tolist(), array.to_pylist()) == ([1, 2, 3], ["two", None, "seven"])


def test_without_checkpoints_nothing_is_found(tmp_path: Path) -> None:
    assert list_checkpoints(str(tmp_path / "never")) == []
    positions, array = CheckpointValues([]).find(ids(1))
    assert (len(positions), array) == (0, None)


def test_removing_twice_is_fine(tmp_path: Path) -> None:
    location = str(tmp_path / "c")
    write_checkpoint(location, 1, ids(1), pa.array([1]))
    remove_checkpoints(location)
    remove_checkpoints(location)
    assert list_checkpoints(location) == []
