"""Processes killed in the middle of their work: nothing is lost, nothing is done twice, nobody stays."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyroaring import BitMap64

import tidemill
from tests.conftest import LEASE, TRUSTED, RunningServer, start_server
from tests.e2e.calls import Brake, CallLog
from tests.e2e.processes import Process, descendants, find_process
from tests.e2e.tables import Maker
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes through /proc")

ROWS: Final = 6000
FRAGMENTS: Final = 4
STEP: Final = 100
OPTIONS: Final[dict[str, Any]] = {
    "batch_checkpoint_flush_interval_seconds": 0.5,
    "checkpoint_size": STEP,
    "max_checkpoint_size": STEP,
}
# A flush interval of rows that take a millisecond, the batch that was not finished, and as much again.
LOSS_PER_TASK: Final = 2 * (500 + STEP)
# With default options: half a second since the last checkpoint, and a batch of a quarter.
DEFAULT_LOSS_PER_TASK: Final = 750
TAKE_OVER_SECONDS: Final = 120.0
TASKS: Final = 2
# Starts in half the time: compiling its code well pays off only in processes that live on.
SMALL_SPARK: Final = {
    "TIDEMILL_SPARK_MASTER": f"local[{TASKS}]",
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass
class Victim:
    """A server of its own whose processes may be killed; `start` brings it back on the same root."""

    root: Path
    running: RunningServer

    @property
    def pid(self) -> int:
        return self.running.process.pid

    def start(self) -> None:
        self.running = start_server(self.root, **SMALL_SPARK)

    def kill(self) -> None:
        process = self.running.process
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def worker(self) -> Process:
        """Its own worker, once it has one."""

        def look() -> Process | None:
            workers = [process for process in descendants(self.pid) if process.is_worker]
            return workers[0] if len(workers) == 1 else None

        return eventually(look, "the server has a worker")

    def connect(self) -> tidemill.Lake:
        return tidemill.connect(self.running.url)

    def is_writable(self) -> bool:
        """Whether nobody holds the database for long."""
        with closing(sqlite3.connect(self.root / "catalog.db", timeout=1, isolation_level=None)) as database:
            try:
                database.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            database.execute("ROLLBACK")
        return True

    def parts(self, job: tidemill.Job) -> list[BitMap64]:
        """The rows of each commit of the job, as its ledger has them."""
        with closing(sqlite3.connect(self.root / "catalog.db")) as database:
            found = database.execute("SELECT row_ids FROM job_parts WHERE job_id = ?", (job.id,))
            return [BitMap64.deserialize(row[0]) for row in found]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("victim")


@pytest.fixture(scope="module")
def victim(root: Path) -> Iterator[Victim]:
    victim = Victim(root, start_server(root, **SMALL_SPARK))
    yield victim
    if victim.running.process.poll() is None:
        victim.running.stop()


@pytest.fixture(scope="module")
def second_worker(root: Path) -> Iterator[Process]:
    """A worker beside the server's own, started at the same time and not waited for."""
    log = root / "second.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidemill", "work", "--root", str(root)],
            stderr=output,
            env={**os.environ, **LEASE, **TRUSTED, **SMALL_SPARK},
        )
    found = find_process(process.pid)
    assert found is not None
    yield found
    process.kill()
    process.wait()


@pytest.fixture
def standby(second_worker: Process, root: Path) -> Process:
    log = root / "second.log"
    eventually(lambda: b"Spark started" in log.read_bytes(), "the second worker is ready", TAKE_OVER_SECONDS)
    return second_worker


@pytest.fixture
def lake(victim: Victim) -> Iterator[tidemill.Lake]:
    with victim.connect() as connected:
        yield connected


@pytest.fixture
def brake(tmp_path: Path) -> Iterator[Brake]:
    brake = Brake(str(tmp_path / "brake"), seconds=0.001)
    brake.put_on()
    yield brake
    brake.release()


@pytest.fixture
def docs(make: Maker, calls: CallLog, brake: Brake) -> tidemill.Table:
    """Six thousand rows in four fragments, with a column that takes a millisecond per row."""

    @tidemill.udf
    def twice(id: int) -> int:
        calls.note(id)
        brake.pause()
        return 2 * id

    table = make.numbered(*[ROWS // FRAGMENTS] * FRAGMENTS)
    table.add_column("twice", twice)
    return table


def half_done(docs: tidemill.Table, calls: CallLog) -> tidemill.Job:
    """A job that has computed much and published nothing, with more than one checkpoint written."""
    job = docs.backfill("twice", **OPTIONS)
    eventually(lambda: calls.count() > ROWS // 2, "half of the rows are computed", TAKE_OVER_SECONDS)
    assert docs.count_rows("twice IS NOT NULL") == 0
    return job


def check_finished(docs: tidemill.Table, job: tidemill.Job, calls: CallLog, victim: Victim) -> None:
    """Every row once, right, and at most a checkpoint's worth of each task computed twice."""
    assert docs.count_rows() == ROWS
    assert docs.count_rows("twice = 2 * id") == ROWS
    assert ROWS <= calls.count() <= ROWS + TASKS * LOSS_PER_TASK
    assert job.progress.reused >= ROWS // 2 - TASKS * LOSS_PER_TASK
    assert job.progress.reused + job.progress.computed == ROWS
    check_applied_once(docs, job, victim)


def check_applied_once(docs: tidemill.Table, job: tidemill.Job, victim: Victim) -> None:
    parts = victim.parts(job)
    assert sum(len(rows) for rows in parts) == len(BitMap64.union(*parts)) == docs.count_rows()


def java_of(worker: Process) -> Process:
    """The Spark of a worker, once it has one."""
    return eventually(
        lambda: next((process for process in descendants(worker.pid) if process.is_java), None),
        "the worker has a Spark",
    )


def is_owner(worker: Process, job: tidemill.Job, victim: Victim) -> bool:
    with closing(sqlite3.connect(victim.root / "catalog.db")) as database:
        (owner,) = database.execute("SELECT owner FROM jobs WHERE job_id = ?", (job.id,)).fetchone()
    return str(owner).endswith(f":{worker.pid}")


@contextmanager
def asleep(worker: Process, victim: Victim) -> Iterator[None]:
    """Stops the worker for the time of the block, at a moment when it does not hold the database."""

    def is_stopped() -> bool:
        worker.send(signal.SIGSTOP)
        if victim.is_writable():
            return True
        worker.send(signal.SIGCONT)
        return False

    eventually(is_stopped, "the worker sleeps")
    try:
        yield
    finally:
        worker.send(signal.SIGCONT)


def test_a_worker_that_slept_past_its_lease_does_no_harm(
    victim: Victim, docs: tidemill.Table, calls: CallLog, standby: Process
) -> None:
    job = half_done(docs, calls)
    workers = [victim.worker(), standby]
    sleeper, other = workers if is_owner(workers[0], job, victim) else workers[::-1]
    with asleep(sleeper, victim):
        eventually(lambda: is_owner(other, job, victim), "the other worker has the job")
    job.wait(TAKE_OVER_SECONDS)
    assert docs.count_rows("twice = 2 * id") == docs.count_rows() == ROWS
    check_applied_once(docs, job, victim)
    assert sleeper.is_alive


def test_a_refresh_whose_spark_is_killed_is_done_by_another_worker(
    victim: Victim, make: Maker, calls: CallLog, brake: Brake, standby: Process
) -> None:
    @tidemill.chunker(output=pa.schema([("id", pa.int64()), ("part", pa.string())]))
    def parts(id: int, text: str) -> Any:
        calls.note(id)
        brake.pause()
        for part in text.split():
            yield {"id": id, "part": part}

    source = make.numbered(*[750] * 4)
    view = make.view(source.chunk(parts))
    brake.release()
    view.refresh().wait(TAKE_OVER_SECONDS)
    source.to_lance().update({"text": "'one two three'"}, where="id % 2 = 0")
    calls.take()
    brake.put_on()
    with asleep(victim.worker(), victim):
        job = view.refresh()
        eventually(lambda: calls.count() > 500, "much of the view is evaluated")
        java_of(standby).send(signal.SIGKILL)
    seen = set()

    def has_ended() -> bool:
        seen.add(view.count_rows())
        return job.reload().state.is_final

    eventually(has_ended, "the refresh ends", TAKE_OVER_SECONDS)
    assert job.state == "DONE"
    assert seen <= {6000, 7500}
    rows = view.query(columns=["id", "__child_index"]).to_pylist()
    assert len(rows) == len({(row["id"], row["__child_index"]) for row in rows}) == 7500
    eventually(lambda: not standby.is_alive, "the worker ends with its Spark", 20)


def test_a_killed_worker_is_followed_by_another_that_goes_on(
    victim: Victim, docs: tidemill.Table, calls: CallLog
) -> None:
    job = half_done(docs, calls)
    worker = victim.worker()
    left = descendants(worker.pid)
    worker.send(signal.SIGKILL)
    eventually(lambda: not any(process.is_alive for process in left), "its Spark ends with it", 20)
    job.wait(TAKE_OVER_SECONDS)
    check_finished(docs, job, calls, victim)
    assert "taken_over" in [event.kind for event in job.events()]


@pytest.mark.deep
def test_a_killed_server_takes_its_worker_along_and_its_successor_finishes_the_job(
    victim: Victim, docs: tidemill.Table, calls: CallLog
) -> None:
    job = half_done(docs, calls)
    family = descendants(victim.pid)
    assert any(process.is_java for process in family)
    victim.kill()
    eventually(lambda: not any(process.is_alive for process in family), "nobody is left", 20)
    victim.start()
    with victim.connect() as lake:
        again = lake.job(job.id).wait(TAKE_OVER_SECONDS)
        check_finished(lake.table(docs.name), again, calls, victim)


def test_a_killed_spark_is_replaced_and_the_job_goes_on(
    victim: Victim, docs: tidemill.Table, calls: CallLog
) -> None:
    job = half_done(docs, calls)
    java_of(victim.worker()).send(signal.SIGKILL)
    job.wait(TAKE_OVER_SECONDS)
    check_finished(docs, job, calls, victim)


def test_killed_task_processes_cost_no_more_than_their_last_checkpoint(
    victim: Victim, docs: tidemill.Table, calls: CallLog
) -> None:
    job = half_done(docs, calls)
    tasks = [process for process in descendants(victim.worker().pid) if process.is_task]
    assert tasks
    for process in tasks:
        process.send(signal.SIGKILL)
    job.wait(TAKE_OVER_SECONDS)
    assert docs.count_rows("twice = 2 * id") == ROWS
    assert ROWS <= calls.count() <= ROWS + TASKS * LOSS_PER_TASK
    assert "task_process_lost" in [event.kind for event in job.events()]
    check_applied_once(docs, job, victim)


def test_twenty_thousand_rows_killed_at_forty_percent_are_hardly_computed_again(
    victim: Victim, make: Maker, calls: CallLog, brake: Brake
) -> None:
    """With default options, and with every process of the machine killed at once."""

    @tidemill.udf
    def twice(id: int) -> int:
        calls.note(id)
        brake.pause()
        return 2 * id

    rows = 20_000
    table = make.numbered(*[rows // FRAGMENTS] * FRAGMENTS, name="many")
    table.add_column("twice", twice)
    job = table.backfill("twice")
    eventually(lambda: calls.count() >= rows * 0.4, "40 % are computed", TAKE_OVER_SECONDS)
    family = descendants(victim.pid)
    for process in family:
        with suppress(ProcessLookupError):
            process.send(signal.SIGKILL)
    victim.kill()
    eventually(lambda: not any(process.is_alive for process in family), "nobody is left", 20)
    victim.start()
    with victim.connect() as lake:
        again = lake.job(job.id).wait(TAKE_OVER_SECONDS)
        assert lake.table(table.name).count_rows("twice = 2 * id") == rows
    print(f"{calls.count():,} calls for {rows:,} rows, {again.progress.reused:,} rows reused")
    assert rows <= calls.count() <= rows + TASKS * DEFAULT_LOSS_PER_TASK


def test_a_stopped_server_leaves_no_process(victim: Victim) -> None:
    java_of(victim.worker())
    family = descendants(victim.pid)
    victim.running.stop()
    eventually(lambda: not any(process.is_alive for process in family), "nobody is left", 15)
    assert victim.running.process.returncode == 0
    assert not (victim.root / "server.json").exists()
