"""A worker killed while it builds an index: another one builds it, once, and readers never notice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx
import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import RunningServer, start_server
from tests.e2e.processes import Process, descendants
from tests.e2e.waiting import eventually
from tests.protocol.wire import TableOnWire

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes through /proc")

ROWS: Final = 5_000
DIMENSION: Final = 64
TAKE_OVER_SECONDS: Final = 180.0
SMALL_SPARK: Final = {
    "TIDEMILL_SPARK_MASTER": "local[1]",
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
# Some seconds of building a graph: long enough to be killed in the middle.
SLOW: Final[dict[str, Any]] = {
    "column": "vector",
    "index_type": "IVF_HNSW_SQ",
    "num_partitions": 1,
    "m": 24,
    "ef_construction": 200,
}


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start_server(tmp_path_factory.mktemp("victim"), **SMALL_SPARK)
    yield running
    running.stop()


@pytest.fixture
def table(victim: RunningServer) -> Iterator[TableOnWire]:
    with httpx.Client(base_url=victim.url, timeout=60) as client:
        made = TableOnWire(client, "kills", "t")
        client.post("/v1/namespace/kills/create", json={"mode": "exist_ok"})
        values = np.random.default_rng(7).random(ROWS * DIMENSION, dtype=np.float32)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), DIMENSION)
        made.create(pa.table({"id": pa.array(range(ROWS), pa.int64()), "vector": vectors}))
        yield made
        made.asked("drop")


def status_of(table: TableOnWire, job: str) -> str:
    status: str = table.http.post(f"/v1/transaction/{job}/describe", json={}).json()["status"]
    return status


def worker_of(victim: RunningServer) -> Process:
    def look() -> Process | None:
        workers = [process for process in descendants(victim.process.pid) if process.is_worker]
        return workers[0] if len(workers) == 1 else None

    return eventually(look, "the server has a worker", TAKE_OVER_SECONDS)


def is_built(table: TableOnWire, job: str) -> bool:
    status = status_of(table, job)
    assert status in ("QUEUED", "RUNNING", "SUCCEEDED")
    return status == "SUCCEEDED"


@pytest.mark.deep
def test_an_index_survives_the_worker_that_built_it(victim: RunningServer, table: TableOnWire) -> None:
    job = table.asked("create_index", SLOW)["transaction_id"]
    eventually(lambda: status_of(table, job) == "RUNNING", "a worker took the job", TAKE_OVER_SECONDS)
    time.sleep(0.5)
    worker = worker_of(victim)
    worker.send(signal.SIGKILL)
    eventually(lambda: not worker.is_alive, "the worker is dead")
    assert status_of(table, job) == "RUNNING"
    assert [index["status"] for index in table.asked("index/list", {})["indexes"]] == ["PENDING"]
    table.insert(
        pa.table({"id": [ROWS], "vector": pa.array([[0.5] * DIMENSION], pa.list_(pa.float32(), DIMENSION))})
    )
    eventually(lambda: is_built(table, job), "another worker built it", TAKE_OVER_SECONDS)
    (index,) = table.asked("index/list", {})["indexes"]
    assert (index["index_uuid"] != job, index["num_indexed_rows"]) == (True, ROWS + 1)
    # The rows, the row of meanwhile, and the index: built again, published once.
    assert table.numbers() == [1, 2, 3]
