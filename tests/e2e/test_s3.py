"""A lake in an object store: clients write and read, jobs run on Spark, and what is dropped is gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import lance
import lancedb
import pyarrow as pa
import pytest
from lance.namespace import RestNamespace

import tidemill
from tests.conftest import RunningServer, start_server
from tests.e2e.calls import Brake, CallLog
from tests.e2e.tables import Maker, by_id, filled, numbered, refreshed
from tests.e2e.waiting import eventually
from tests.object_store import SECRET, ObjectStore
from tests.protocol.wire import some_rows, stream

PREFIX = "team/warehouse"
ONE_BY_ONE: Any = {
    "checkpoint_size": 1,
    "max_checkpoint_size": 1,
    "batch_checkpoint_flush_interval_seconds": 0.01,
}


@dataclass(frozen=True)
class JobFiles:
    """What jobs keep beside the tables until they are done; fingerprints stay."""

    store: ObjectStore
    bucket: str

    def names(self) -> list[str]:
        keys = self.store.keys(self.bucket, f"{PREFIX}/_jobs/")
        return [key for key in keys if not key.endswith(("/", ".fingerprints"))]


def measured(calls: CallLog) -> Any:
    @tidemill.udf
    def size(text: str) -> int:
        calls.note(text)
        return len(text)

    return size


@pytest.fixture(scope="module")
def bucket(object_store: ObjectStore) -> str:
    return object_store.new_bucket()


@pytest.fixture(scope="module")
def server(
    object_store: ObjectStore, bucket: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """The standard AWS variables and a warehouse: nothing else is needed."""
    running = start_server(
        tmp_path_factory.mktemp("s3"),
        TIDEMILL_WAREHOUSE=f"s3://{bucket}/{PREFIX}",
        TIDEMILL_SPARK_MASTER="local[2]",
        **object_store.environment,
    )
    yield running
    running.stop()


@pytest.fixture(scope="module")
def lake(server: RunningServer) -> Iterator[tidemill.Lake]:
    with tidemill.connect(server.url) as connected:
        yield connected


@pytest.fixture(scope="module")
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def worker(http: httpx.Client) -> None:
    """Spark has started: that does not count as the time of a job."""
    eventually(lambda: http.get("/api/v1/health").json()["worker"] == "running", "a worker runs", timeout=200)


@pytest.fixture
def make(lake: tidemill.Lake, namespace: str, worker: None) -> Maker:
    return Maker(lake, namespace)


@pytest.fixture
def store_of_jobs(object_store: ObjectStore, bucket: str) -> JobFiles:
    return JobFiles(object_store, bucket)


@pytest.fixture(autouse=True)
def own_credentials(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """This server vends none: its clients have their own."""
    for name, value in {**object_store.environment, "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)


def test_the_server_is_healthy(http: httpx.Client) -> None:
    assert http.get("/api/v1/health").json()["storage"] == "ok"


def test_pylance_writes_and_lancedb_reads(
    server: RunningServer, object_store: ObjectStore, bucket: str, namespace: str
) -> None:
    rest = RestNamespace(uri=server.url)
    levels = [namespace, "t"]
    made = lance.write_dataset(some_rows(), namespace_client=rest, table_id=levels, mode="create")
    assert made.uri.startswith(f"s3://{bucket}/{PREFIX}/")
    lance.write_dataset(some_rows(4), namespace_client=rest, table_id=levels, mode="append")
    table = lancedb.connect_namespace("rest", {"uri": server.url}).open_table("t", namespace_path=[namespace])
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 5, 6]
    table.add(some_rows(7))
    opened = lance.dataset(namespace_client=rest, table_id=levels)
    assert (opened.version, opened.count_rows()) == (3, 9)
    versions = made.uri.removeprefix(f"s3://{bucket}/") + "/_versions/"
    names = [key.removeprefix(versions) for key in object_store.keys(bucket, versions)]
    manifests = [name for name in names if ".manifest" in name]
    assert sorted(name.partition(".")[2] for name in manifests) == ["manifest"] * 3


def test_a_branch_has_versions_of_its_own(server: RunningServer, http: httpx.Client, namespace: str) -> None:
    rest, levels = RestNamespace(uri=server.url), [namespace, "branched"]
    made = lance.write_dataset(some_rows(), namespace_client=rest, table_id=levels, mode="create")
    branch = lance.write_dataset(some_rows(4), made.create_branch("feature/x"), mode="append")
    assert (branch.count_rows(), lance.dataset(namespace_client=rest, table_id=levels).count_rows()) == (6, 3)
    listed = http.post(f"/v1/table/{namespace}$branched/version/list", json={"branch": "feature/x"}).json()
    assert [version["version"] for version in listed["versions"]] == [1, 2]


def test_rows_come_and_go_over_http(
    http: httpx.Client, object_store: ObjectStore, bucket: str, namespace: str
) -> None:
    path = f"/v1/table/{namespace}$t"
    created = http.post(f"{path}/create", content=stream(some_rows()))
    assert created.status_code == 200, created.text
    location = created.json()["location"]
    assert location.startswith(f"s3://{bucket}/{PREFIX}/")
    assert http.post(f"{path}/insert", content=stream(some_rows(4))).status_code == 200
    found = http.post(
        f"{path}/query", json={"filter": "id > 4", "columns": {"column_names": ["id"]}, "k": 9, "vector": {}}
    )
    assert found.status_code == 200, found.text
    assert pa.ipc.open_file(found.content).read_all()["id"].to_pylist() == [5, 6]
    key = location.removeprefix(f"s3://{bucket}/")
    assert len(object_store.keys(bucket, key)) >= 4
    assert http.post(f"{path}/drop", json={}).status_code == 200
    assert object_store.keys(bucket, key) == []


def test_a_column_is_filled_on_spark(make: Maker, calls: CallLog) -> None:
    table = make.numbered(4, 4)
    table.add_column("size", measured(calls))
    filled(table, "size")
    assert by_id(table, "size") == dict.fromkeys(range(8), 6)
    assert calls.count() == 8


def test_a_failed_job_goes_on_from_its_checkpoints(
    make: Maker, calls: CallLog, brake: Brake, store_of_jobs: JobFiles
) -> None:
    @tidemill.udf
    def fragile(id: int) -> int:
        calls.note(id)
        brake.pause()
        if id == 39 and os.path.exists(brake.path):
            raise ValueError("not yet")
        return id * 2

    table = make.numbered(40)
    table.add_column("twice", fragile)
    with pytest.raises(tidemill.JobFailed):
        filled(table, "twice", **ONE_BY_ONE)
    assert store_of_jobs.names()
    brake.release()
    calls.take()
    job = filled(table, "twice")
    assert by_id(table, "twice") == {number: number * 2 for number in range(40)}
    assert calls.count() < 40
    assert job.progress.reused == 40 - calls.count()
    assert store_of_jobs.names() == []


def test_a_view_follows_its_source(make: Maker) -> None:
    source = make.numbered(4, 2)
    view = make.view(source.where("id > 1"))
    refreshed(view)
    source.add(numbered(6, 2))
    refreshed(view)
    assert sorted(view.query(columns=["id"])["id"].to_pylist()) == [2, 3, 4, 5, 6, 7]
    source._post("table", "delete", {"predicate": "id = 3"})
    source._post("table", "update", {"predicate": "id = 4", "updates": [["text", "'changed'"]]})
    job = refreshed(view)
    assert (job.progress.removed, job.progress.replaced) == (1, 1)
    shown = view.query(columns=["id", "text"]).to_pylist()
    assert {row["id"] for row in shown} == {2, 4, 5, 6, 7}
    assert "changed" in {row["text"] for row in shown}


def test_no_secret_is_logged(server: RunningServer) -> None:
    assert SECRET not in (server.root / "server.log").read_text()
