"""lancedb's remote client, as the tests of its dialect share it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import lancedb
import pyarrow as pa
import pytest
from lancedb.remote.db import RemoteDBConnection
from lancedb.remote.table import RemoteTable

from tests.conftest import RunningServer

# The first job of a run starts Spark.
PATIENCE = timedelta(minutes=5)


def numbers(first: int = 1, count: int = 3) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "x": [float(number) for number in ids], "name": [f"n{n}" for n in ids]})


def new_name(kind: str) -> str:
    return f"{kind}{uuid4().hex[:10]}"


@pytest.fixture(scope="session")
def database(server: RunningServer) -> RemoteDBConnection:
    connected = lancedb.connect("db://x", api_key="k", host_override=server.url)
    assert isinstance(connected, RemoteDBConnection)
    return connected


@pytest.fixture
def docs(database: RemoteDBConnection) -> Iterator[RemoteTable]:
    """A table of three rows at the root, where this client keeps them."""
    name = new_name("docs")
    made = database.create_table(name, numbers())
    assert isinstance(made, RemoteTable)
    yield made
    database.drop_table(name)


def values(table: RemoteTable, column: str) -> list[object]:
    rows = table.search().select(["id", column]).to_arrow().sort_by("id")
    return list(rows[column].to_pylist())


def fill(table: RemoteTable, column: str) -> object:
    return table.refresh_column_async(column).wait(PATIENCE)


def wait_for_event(database: RemoteDBConnection, job_id: str, state: str) -> None:
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while not database.open_job(job_id).events(filter=f"state = '{state}'").num_rows:
        assert time.monotonic() < deadline, f"job {job_id} never was {state}"
        time.sleep(0.2)
