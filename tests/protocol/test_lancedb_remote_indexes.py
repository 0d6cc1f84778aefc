"""lancedb's remote client with indexes and columns: what it sends, what it reads, what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import lancedb
import numpy as np
import pyarrow as pa
import pytest
from lancedb.index import (
    FTS,
    Bitmap,
    BTree,
    HnswSq,
    IvfFlat,
    IvfPq,
    IvfRq,
    IvfSq,
    LabelList,
)
from lancedb.remote.db import RemoteDBConnection
from lancedb.remote.errors import HttpError
from lancedb.remote.table import RemoteTable

from tests.conftest import RunningServer

ROWS = 300
DIMENSION = 16
WAIT = timedelta(seconds=90)


@pytest.fixture(scope="module")
def database(server: RunningServer) -> RemoteDBConnection:
    connected = lancedb.connect("db://x", api_key="k", host_override=server.url)
    assert isinstance(connected, RemoteDBConnection)
    return connected


@pytest.fixture
def remote(database: RemoteDBConnection) -> Iterator[RemoteTable]:
    name = f"remote{uuid4().hex[:12]}"
    values = np.random.default_rng(7).random(ROWS * DIMENSION, dtype=np.float32)
    rows = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "text": [f"row {number}" for number in range(ROWS)],
            "tags": pa.array([[f"t{number % 3}"] for number in range(ROWS)], pa.list_(pa.string())),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(values), DIMENSION),
        }
    )
    made = database.create_table(name, rows)
    assert isinstance(made, RemoteTable)
    yield made
    database.drop_table(name)


@pytest.mark.parametrize(
    ("column", "config", "index_type"),
    [
        ("id", BTree(), "BTree"),
        ("id", Bitmap(), "Bitmap"),
        ("tags", LabelList(), "LabelList"),
        ("text", FTS(with_position=True), "FTS"),
        ("vector", IvfFlat(num_partitions=2), "IvfFlat"),
        ("vector", IvfPq(distance_type="cosine"), "IvfPq"),
        ("vector", IvfSq(), "IvfSq"),
        ("vector", IvfRq(), "IvfRq"),
        ("vector", HnswSq(m=8, ef_construction=20), "IvfHnswSq"),
    ],
)
@pytest.mark.operation("CreateTableIndex", "ListTableIndices", "DescribeTableIndexStats", client="remote")
def test_an_index_is_created_and_waited_for(
    remote: RemoteTable, column: str, config: Any, index_type: str
) -> None:
    remote.create_index(column, config=config, wait_timeout=WAIT)
    (listed,) = remote.list_indices()
    assert (listed.name, listed.index_type, listed.columns) == (f"{column}_idx", index_type, [column])
    stats = remote.index_stats(f"{column}_idx")
    assert stats is not None
    assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (ROWS, 0)


def test_an_index_build_is_a_job_to_wait_for(remote: RemoteTable) -> None:
    job = remote.create_index_async("id", config=BTree())
    job.wait(timeout=WAIT)
    assert [index.name for index in remote.list_indices()] == ["id_idx"]


def test_an_index_is_replaced_unless_told_not_to(remote: RemoteTable) -> None:
    remote.create_index("id", config=BTree(), wait_timeout=WAIT)
    job = remote.create_index_async("id", config=Bitmap())
    job.wait(timeout=WAIT)
    (listed,) = remote.list_indices()
    assert listed.index_type == "Bitmap"
    with pytest.raises(HttpError, match="already has an index"):
        remote.create_index_async("id", config=BTree(), replace=False)


@pytest.mark.operation("DropTableIndex", client="remote")
def test_an_index_is_warmed_and_dropped(remote: RemoteTable) -> None:
    remote.create_index("id", config=BTree(), wait_timeout=WAIT)
    remote.prewarm_index("id_idx")
    remote.drop_index("id_idx")
    assert list(remote.list_indices()) == []
    assert remote.index_stats("id_idx") is None
    with pytest.raises(RuntimeError, match="was not found"):
        remote.drop_index("id_idx")


@pytest.mark.operation(
    "AlterTableAddColumns", "AlterTableAlterColumns", "AlterTableDropColumns", client="remote"
)
def test_columns_are_added_altered_and_dropped(remote: RemoteTable) -> None:
    assert remote.add_columns({"twice": "id * 2"}).version == 2
    assert remote.add_columns(pa.schema([pa.field("empty", pa.int32())])).version == 3
    change: Any = {"path": "twice", "rename": "double", "data_type": pa.int32()}
    altered = remote.alter_columns(change)
    assert altered.version == 4
    assert remote.drop_columns(["tags"]).version == 5
    schema = remote.schema
    assert set(schema.names) == {
        "id",
        "text",
        "vector",
        "double",
        "empty",
    }
    assert schema.field("double").type == pa.int32()
    assert remote.count_rows("double = id * 2 AND empty IS NULL") == ROWS
