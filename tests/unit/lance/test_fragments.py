"""Column files have one value per physical row, whatever was deleted."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.file import LanceFileReader

from tidemill.lance.fragments import ColumnFileWriter, merged

VALUES = {
    "int": pa.array([1, None, 3], pa.int32()),
    "string": pa.array(["a", None, "c"], pa.string()),
    "vector": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    "list": pa.array([[1], [], None], pa.list_(pa.int64())),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
    "bool": pa.array([True, None, False]),
    "timestamp": pa.array([1, None, 3], pa.timestamp("us", "UTC")),
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    uri = str(tmp_path_factory.mktemp("columns") / "t.lance")
    return lance.write_dataset(pa.table({"x": [1]}), uri)


@pytest.mark.parametrize("name", VALUES)
def test_holes_are_filled_with_nulls_in_every_type(dataset: lance.LanceDataset, name: str) -> None:
    values = VALUES[name]
    with ColumnFileWriter(dataset, dataset.uri, 7, pa.schema([pa.field("y", values.type)])) as writer:
        writer.write(np.array([1, 2]), [values.slice(0, 2)])
        writer.write(np.array([5]), [values.slice(2, 1)])
    path = str(Path(dataset.uri) / "data" / writer.path)
    found = LanceFileReader(path).read_all().to_table().column(0).to_pylist()
    first, second, third = values.to_pylist()
    assert found == [None, first, second, None, None, third, None]


@given(st.lists(st.integers() | st.none(), min_size=1, max_size=20), st.data())
@settings(max_examples=50)
def test_merging_exchanges_only_the_given_positions(current: list[int | None], data: st.DataObject) -> None:
    bounded = [None if value is None else value % 1000 for value in current]
    positions = sorted(data.draw(st.sets(st.integers(0, len(bounded) - 1))))
    fresh = [10_000 + n for n in range(len(positions))]
    found = merged(
        pa.array(bounded, pa.int64()), np.array(positions, dtype=np.int64), pa.array(fresh, pa.int64())
    )
    expected = list(bounded)
    for position, value in zip(positions, fresh, strict=True):
        expected[position] = value
    assert found.to_pylist() == expected
