"""Jobs that wait for Spark to start, with the in-process executor behind a cluster that starts late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.e2e.waiting import eventually
from tests.engine import Engine, InlineStageExecutor, column_function, succeeded
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.columns import ColumnFile, ComputedRows, FillColumn
from tidemill.jobs.model.jobs import Job, JobState
from tidemill.jobs.model.options import BackfillRequest
from tidemill.jobs.model.views import ViewStage, WrittenRows
from tidemill.jobs.ports import StageWatch
from tidemill.jobs.worker.leases import LeasePolicy
from tidemill.spark.cluster import SparkCluster
from tidemill.spark.startup import SparkNotStarted, SparkStart, reason_of

QUICK = LeasePolicy(cancel_poll=timedelta(milliseconds=10), max_attempts=2)
CLUSTER = cast("SparkCluster", object())


class WaitingExecutor(InlineStageExecutor):
    """Waits for Spark where the executor on Spark does, and then works in this process."""

    def __init__(self, scratch_root: str, spark: SparkStart) -> None:
        super().__init__(scratch_root)
        self._spark = spark

    def fill_column(self, stage: FillColumn, watch: StageWatch) -> Sequence[ColumnFile]:
        self._spark.get(watch)
        return super().fill_column(stage, watch)

    def compute_rows(self, stage: FillColumn, watch: StageWatch) -> Sequence[ComputedRows]:
        self._spark.get(watch)
        return super().compute_rows(stage, watch)

    def write_view(self, stage: ViewStage, watch: StageWatch) -> WrittenRows:
        self._spark.get(watch)
        return super().write_view(stage, watch)


@pytest.fixture
def opening() -> Future[SparkCluster]:
    return Future()


@pytest.fixture
def engine(tmp_path: Path, opening: Future[SparkCluster]) -> Iterator[Engine]:
    running = Engine(tmp_path, WaitingExecutor(str(tmp_path / "stages"), SparkStart(opening)))
    running.worker = running.new_worker("first", QUICK)
    yield running
    running.close()


@pytest.fixture
def table(engine: Engine) -> TableIdent:
    ident = engine.create_table("t", pa.table({"x": pa.array(range(10), pa.int64())}))
    engine.declare(ident, "y", column_function(lambda x: x, pa.int64(), "x"))
    return ident


def submitted(engine: Engine, table: TableIdent, **request: Any) -> Job:
    jobs = engine.operations.jobs
    return jobs.submit_backfill(LOCAL_CALLER, table, BackfillRequest("y", **request), None)


def kinds(engine: Engine, job: Job) -> list[str]:
    return [event.kind for event in engine.operations.jobs.events(LOCAL_CALLER, job.job_id, 0)]


def started(engine: Engine, job: Job) -> Thread:
    """The job in a thread of its own, once it waits for Spark."""
    claimed = engine.worker.claim()
    assert claimed is not None
    thread = Thread(target=engine.worker.run, args=(claimed,))
    thread.start()
    eventually(lambda: "starting_spark" in kinds(engine, job), "the job waits for Spark")
    return thread


def test_a_job_without_work_does_not_wait_for_spark(engine: Engine, table: TableIdent) -> None:
    engine.open(table).delete("true")
    job = engine.run(submitted(engine, table))
    assert succeeded(job)["rows_computed"] == 0
    assert "starting_spark" not in kinds(engine, job)


def test_a_job_with_work_says_that_it_waits_and_goes_on_when_spark_is_there(
    engine: Engine, table: TableIdent, opening: Future[SparkCluster]
) -> None:
    job = submitted(engine, table)
    thread = started(engine, job)
    assert engine.operations.jobs.get(LOCAL_CALLER, job.job_id).state is JobState.RUNNING
    opening.set_result(CLUSTER)
    thread.join()
    assert succeeded(engine.operations.jobs.get(LOCAL_CALLER, job.job_id))["rows_computed"] == 10
    assert kinds(engine, job) == ["submitted", "started", "planned", "starting_spark", "done"]


@pytest.mark.parametrize(("act", "state"), [("cancel", JobState.CANCELLED), ("pause", JobState.PAUSED)])
def test_a_job_that_waits_for_spark_can_be_stopped(
    engine: Engine, table: TableIdent, act: str, state: JobState
) -> None:
    job = submitted(engine, table)
    thread = started(engine, job)
    getattr(engine.operations.jobs, act)(LOCAL_CALLER, job.job_id)
    thread.join(30)
    assert engine.operations.jobs.get(LOCAL_CALLER, job.job_id).state is state


def test_a_worker_that_stops_releases_the_job_that_waits(engine: Engine, table: TableIdent) -> None:
    job = submitted(engine, table)
    thread = started(engine, job)
    engine.worker.stop()
    thread.join(30)
    left = engine.new_worker("second").claim()
    assert left is not None
    assert left.job_id == job.job_id


def test_a_job_is_given_back_with_the_reason_why_spark_did_not_start(
    engine: Engine, table: TableIdent, opening: Future[SparkCluster]
) -> None:
    job = submitted(engine, table)
    opening.set_exception(RuntimeError("no Java\nwith a banner"))
    for _ in range(QUICK.max_attempts):
        claimed = engine.worker.claim()
        assert claimed is not None
        with pytest.raises(SparkNotStarted, match=r"^Spark did not start: no Java$") as caught:
            engine.worker.run(claimed)
        engine.worker.give_back(claimed, "spark_not_started", str(caught.value))
    assert kinds(engine, job).count("spark_not_started") == QUICK.max_attempts
    ended = engine.run(job)
    assert ended.state is JobState.FAILED
    assert ended.failure is not None
    assert ended.failure.message.endswith("Spark did not start: no Java")


def test_a_job_that_kills_spark_again_and_again_is_given_up(engine: Engine, table: TableIdent) -> None:
    policy = LeasePolicy(max_spark_deaths=2)
    engine.worker = engine.new_worker("first", policy)
    job = submitted(engine, table)
    for _ in range(policy.max_spark_deaths):
        claimed = engine.worker.claim()
        assert claimed is not None
        engine.worker.give_back(claimed, "spark_died", "The last error was Py4JError: no answer")
    ended = engine.run(job)
    assert ended.state is JobState.FAILED
    assert ended.failure is not None
    assert "Spark died 2 times while it ran this job" in ended.failure.message
    assert "no answer" in ended.failure.message


def test_the_end_of_the_start_is_announced_whether_it_succeeds_or_fails() -> None:
    ends: list[str] = []
    found = SparkStart.begin(lambda: CLUSTER, lambda: ends.append("opened"))
    eventually(lambda: ends == ["opened"], "the start has ended")
    assert found.find() is CLUSTER

    def fail() -> SparkCluster:
        raise OSError("no Java")

    failed = SparkStart.begin(fail, lambda: ends.append("failed"))
    eventually(lambda: ends == ["opened", "failed"], "the start has failed")
    with pytest.raises(OSError, match="no Java"):
        failed.find()


def test_a_cluster_that_has_not_started_is_not_found(opening: Future[SparkCluster]) -> None:
    assert SparkStart(opening).find() is None


def test_an_exception_without_a_message_is_named() -> None:
    assert reason_of(MemoryError()) == "Spark did not start: MemoryError"
