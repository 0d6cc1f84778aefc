"""Clusters by name: the same jobs on a standalone cluster and through Spark Connect, each with a worker."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import tidemill
from tests.conftest import RunningServer, start_server
from tests.e2e.calls import Brake, CallLog
from tests.e2e.processes import descendants
from tests.e2e.tables import Maker, by_id, filled, row_ids
from tests.e2e.waiting import eventually, settled
from tests.spark_clusters import QUICK_JAVA, StandaloneCluster, free_port, running_connect, running_standalone
from tidemill.sdk import errors
from tidemill.spark import connect
from tidemill.spark.cluster import Task, open_cluster
from tidemill.spark.connect import ConnectCluster, ConnectionLost
from tidemill.spark.target import SparkTarget

pytestmark = [
    pytest.mark.spark,
    # Five Java processes start together, on as many cores as there are.
    pytest.mark.timeout(600),
    pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="looks at processes through /proc"),
]

FRAGMENTS: Final = 4
ROWS: Final = 400
POISON: Final = 57
START_SECONDS: Final = 240.0
STOP_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Clustered:
    """A server with a worker for each of three clusters, two of them on one Connect server."""

    server: RunningServer
    standalone: StandaloneCluster
    connect: str


def cluster_settings(standalone: StandaloneCluster, connect: str) -> dict[str, str]:
    named = {
        "standalone": {"master": standalone.url, "config": standalone.config, "slots": 2},
        "connect": {"master": connect, "slots": 2},
    }
    return {
        "TIDEMILL_SPARK_MASTER": connect,
        "TIDEMILL_SPARK_SLOTS": "2",
        "TIDEMILL_SPARK_CLUSTERS": json.dumps(named),
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
    }


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clustered]:
    folder = tmp_path_factory.mktemp("clusters")
    with ExitStack() as stack:
        standalone = stack.enter_context(running_standalone(folder / "standalone"))
        connect = stack.enter_context(running_connect(folder / "connect"))
        server = start_server(folder / "lake", **cluster_settings(standalone, connect))
        stack.callback(server.stop)
        yield Clustered(server, standalone, connect)


@pytest.fixture
def lake(clustered: Clustered) -> Iterator[tidemill.Lake]:
    with tidemill.connect(clustered.server.url) as connected:
        yield connected


@pytest.fixture
def docs(make: Maker, calls: CallLog, brake: Brake) -> tidemill.Table:
    """Four fragments, and a column that takes its time while the brake is on."""

    @tidemill.udf
    def twice(id: int) -> int:
        calls.note(id)
        brake.pause()
        return 2 * id

    table = make.numbered(*[ROWS // FRAGMENTS] * FRAGMENTS)
    table.add_column("twice", twice)
    return table


@pytest.fixture
def brake(tmp_path: Path) -> Iterator[Brake]:
    brake = Brake(str(tmp_path / "brake"), seconds=0.03)
    brake.put_on()
    yield brake
    brake.release()


def test_a_job_outlives_half_of_a_standalone_cluster(
    clustered: Clustered, docs: tidemill.Table, calls: CallLog, brake: Brake
) -> None:
    job = docs.backfill("twice", cluster="standalone", checkpoint_size=10)
    eventually(lambda: calls.count() > ROWS // 4, "many of the rows are computed", START_SECONDS)
    victim = clustered.standalone.workers[0]
    assert clustered.standalone.executors(victim) != []
    clustered.standalone.kill(victim)
    assert job.reload().state == "RUNNING"
    assert calls.count() < ROWS
    brake.release()
    job.wait(START_SECONDS)
    assert job.state == "DONE"
    assert job.cluster == "standalone"
    assert by_id(docs, "twice") == {number: 2 * number for number in range(ROWS)}


def test_a_job_runs_through_connect(docs: tidemill.Table, brake: Brake) -> None:
    brake.release()
    job = filled(docs, "twice", cluster="connect")
    assert (job.state, job.cluster) == ("DONE", "connect")
    assert by_id(docs, "twice") == {number: 2 * number for number in range(ROWS)}


def test_a_function_that_raises_behind_connect_is_traced_to_its_row(make: Maker) -> None:
    @tidemill.udf(output=pa.int64())
    def poisoned(id: pa.Array) -> Any:
        if POISON in id.to_pylist():
            raise ValueError(f"{POISON} is poison")
        return id

    table = make.numbered(50, 50)
    table.add_column("made", poisoned)
    with pytest.raises(tidemill.JobFailed) as failed:
        filled(table, "made", cluster="connect")
    assert failed.value.exception == "ValueError"
    assert failed.value.row_id == row_ids(table)[POISON]
    assert "in poisoned" in (failed.value.traceback or "")


def test_a_job_behind_connect_stops_within_seconds(docs: tidemill.Table, calls: CallLog) -> None:
    job = docs.backfill("twice", cluster="connect")
    eventually(lambda: calls.count() > 0, "it has begun", START_SECONDS)
    job.cancel()
    asked = time.monotonic()
    eventually(lambda: job.reload().state == "CANCELLED", "it is cancelled", STOP_SECONDS)
    settled(calls.count, "the number of calls", timeout=STOP_SECONDS)
    assert time.monotonic() - asked < STOP_SECONDS
    assert calls.count() < ROWS
    assert docs.count_rows("twice IS NOT NULL") == 0


def test_every_cluster_has_a_worker_of_its_own(clustered: Clustered) -> None:
    children = descendants(clustered.server.process.pid)
    assert len([process for process in children if process.is_worker]) == 3


def test_a_job_for_no_cluster_in_particular_runs_on_the_default_one(
    docs: tidemill.Table, brake: Brake
) -> None:
    brake.release()
    assert filled(docs, "twice").cluster == "default"


def test_a_cluster_that_is_not_configured_is_refused_with_those_that_are(docs: tidemill.Table) -> None:
    with pytest.raises(errors.InvalidRequest, match="'tpu'; configured are: connect, default, standalone"):
        docs.backfill("twice", cluster="tpu")


@pytest.fixture
def session(clustered: Clustered, tmp_path: Path) -> Iterator[ConnectCluster]:
    opened = open_cluster(SparkTarget(clustered.connect, tmp_path, slots=2))
    assert isinstance(opened, ConnectCluster)
    yield opened
    opened.stop()


@pytest.fixture
def square() -> Task:
    """Made here and not in the module, which Python workers do not have."""

    def compute(number: int) -> bytes:
        return str(number * number).encode()

    return compute


def test_answers_come_in_the_order_of_the_tasks(session: ConnectCluster, square: Task) -> None:
    assert session.run("squares", square, 5) == [b"0", b"1", b"4", b"9", b"16"]


def test_a_session_that_the_server_has_forgotten_is_opened_anew(
    session: ConnectCluster, square: Task
) -> None:
    session._session.client.release_session()
    assert not session.is_alive()
    assert session.run("squares", square, 2) == [b"0", b"1"]
    assert session.is_alive()


def test_a_task_that_fails_leaves_the_session_alive(session: ConnectCluster) -> None:
    def fails(number: int) -> bytes:
        raise ValueError("no")

    with pytest.raises(PySparkException, match="ValueError: no"):
        session.run("failing", fails, 1)
    assert session.is_alive()


def test_a_server_that_shuts_down_counts_as_gone_though_it_answers(
    session: ConnectCluster, square: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(session: object, task: Task, tasks: int) -> list[bytes]:
        raise PySparkException("Cannot call methods on a stopped SparkContext.")

    monkeypatch.setattr(connect, "through_arrow", stopped)
    with pytest.raises(ConnectionLost):
        session.run("squares", square, 1)
    assert not session.is_alive()


@pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED:UserWarning")
def test_a_server_that_does_not_answer_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "MAX_RETRIES", 1)
    with pytest.raises(PySparkException, match=r"(?i)failed to connect"):
        ConnectCluster(f"sc://127.0.0.1:{free_port()}", 2, {})
