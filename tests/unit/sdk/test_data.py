"""Rows in the forms users have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemill.sdk.data import as_reader, stream_bytes

TABLE = pa.table({"id": [1, 2], "text": ["a", "b"]})
ROWS = [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_batches(),
        TABLE.to_reader(),
        ROWS,
        {"id": [1, 2], "text": ["a", "b"]},
        pd.DataFrame(ROWS),
        pl.DataFrame(ROWS),
        pl.LazyFrame(ROWS),
    ],
    ids=lambda data: type(data).__name__,
)
def test_every_form_of_rows_is_read(data: Any) -> None:
    assert as_reader(data).read_all().to_pylist() == ROWS


def test_parquet_is_read_from_files_and_folders(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    assert as_reader(tmp_path).read_all().to_pylist() == ROWS
    assert as_reader(str(tmp_path / "a.parquet")).read_all() == TABLE
    assert as_reader([tmp_path / "a.parquet", tmp_path / "a.parquet"]).read_all().num_rows == 4


def test_keys_that_only_later_rows_have_become_columns() -> None:
    assert as_reader([{"a": 1}, {"b": "x"}]).read_all().to_pylist() == [
        {"a": 1, "b": None},
        {"a": None, "b": "x"},
    ]


def test_a_schema_gives_the_types_of_lists() -> None:
    schema = pa.schema([("id", pa.int8()), ("vector", pa.list_(pa.float32(), 2)), ("other", pa.string())])
    found = as_reader([{"id": 1, "vector": [1, 2]}], schema).read_all()
    assert found.schema == pa.schema([schema.field("id"), schema.field("vector")])


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        (42, TypeError, "a int is not tabular data"),
        ([1], TypeError, "row 0 is a int"),
        ([], ValueError, "an empty list has no columns"),
        ([{}], ValueError, "no columns"),
        ([{"a": 1}, {"a": "x"}], ValueError, "column 'a' cannot be read"),
        ([{"a": None}], ValueError, "column 'a' has only nulls"),
        ("nowhere.parquet", FileNotFoundError, r"no Parquet file or folder nowhere\.parquet"),
        (Path(__file__), ValueError, "cannot be read as Parquet"),
    ],
)
def test_what_is_no_table_is_named(data: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        as_reader(data)


def test_a_column_the_table_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="no column 'b'; the columns are a"):
        as_reader([{"b": 1}], pa.schema([("a", pa.int64())]))


def test_rows_are_streamed_batch_by_batch() -> None:
    batches = pa.Table.from_batches(TABLE.to_batches() * 3)
    pieces = list(stream_bytes(batches.to_reader()))
    assert len(pieces) > 3
    assert pa.ipc.open_stream(b"".join(pieces)).read_all() == batches


def test_a_stream_without_rows_keeps_its_columns() -> None:
    assert (
        pa.ipc.open_stream(b"".join(stream_bytes(TABLE.schema.empty_table().to_reader()))).schema
        == TABLE.schema
    )
