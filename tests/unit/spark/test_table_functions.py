"""The rows a table function reads."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from tidemill.spark.views.table_functions import TableSource


@pytest.fixture
def on_rows() -> list[int]:
    return []


@pytest.fixture
def source(tmp_path: Path, on_rows: list[int]) -> TableSource:
    rows = pa.table({"x": list(range(10)), "key": list("aabbccddee")})
    dataset = lance.write_dataset(rows, str(tmp_path / "t.lance"))
    return TableSource(dataset, {"twice": "x * 2", "key": "key"}, "x > 1", None, None, on_rows.append)


def test_it_is_read_in_every_form(source: TableSource) -> None:
    rows = [{"twice": x * 2, "key": "aabbccddee"[x]} for x in range(2, 10)]
    assert source.to_list() == rows
    assert source.to_arrow().to_pylist() == rows
    assert source.to_pandas().to_dict("records") == rows
    assert [row for batch in source.to_batches(3) for row in batch.to_pylist()] == rows
    assert source.schema.names == ["twice", "key"]


def test_it_is_narrowed_and_stays_as_it_was(source: TableSource) -> None:
    narrowed = source.where("key <> 'c'").select(["twice"]).offset(1).limit(2)
    assert narrowed.to_list() == [{"twice": 6}, {"twice": 12}]
    assert source.count_rows() == 8
    assert source.select({"y": "x + 1"}).limit(1).to_list() == [{"y": 3}]
    assert source.with_row_id().to_arrow().column_names == ["twice", "key", "_rowid"]


def test_it_says_how_many_rows_were_read(source: TableSource, on_rows: list[int]) -> None:
    source.to_arrow()
    assert sum(on_rows) == 8
