"""The worker process: one warm Spark session, one job at a time."""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from threading import Event, Thread
from typing import Final

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tidemill.errors import Unavailable
from tidemill.jobs.model.jobs import BackfillRequest, Failure, IndexRequest, Job, RefreshRequest
from tidemill.jobs.operations.backfill import BackfillRunner
from tidemill.jobs.operations.indexing import IndexRunner
from tidemill.jobs.operations.refresh import RefreshRunner
from tidemill.jobs.operations.work import JobWorker
from tidemill.lance.checkpoints import LanceCheckpoints
from tidemill.lance.indexes import LanceTableIndexes
from tidemill.lance.publisher import LancePublisher
from tidemill.server.bootstrap import Lake, open_lake
from tidemill.server.lifelines import stop_with_stdin
from tidemill.server.logs import configure_logs
from tidemill.server.settings import ServerSettings
from tidemill.spark.executor import SparkStageExecutor
from tidemill.spark.session import open_session, warm_up

BEAT_SECONDS: Final = 2.0

log = structlog.get_logger("tidemill.worker")


class SparkDied(Exception):
    """The JVM is gone; only a new process can have another."""


def work(settings: ServerSettings) -> None:
    """Runs jobs until told to stop by a signal or, if so set, by the end of standard input."""
    configure_logs(settings.log_level)
    # Spark takes its Python workers' interpreter from this variable alone; another would lack our code.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    is_stopping, bell = Event(), Event()
    worker: JobWorker | None = None

    def stop() -> None:
        is_stopping.set()
        bell.set()
        if worker is None:
            # Still starting: there is no job to give back, and Spark ends with this process.
            os._exit(0)
        worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())
    if settings.exit_with_stdin:
        stop_with_stdin(stop, bell.set)
    lake = open_lake(settings)
    owner = f"{socket.gethostname()}:{os.getpid()}"
    session = open_session(settings.spark_target())
    warm_up(session)
    worker = build_worker(lake, settings, session, owner)
    Thread(target=_show_life, args=(lake, owner, is_stopping), name="liveness", daemon=True).start()
    log.info("worker ready", owner=owner)
    try:
        while not is_stopping.is_set():
            bell.clear()
            if not _run_one(worker, session):
                bell.wait(settings.job_poll_seconds)
    finally:
        lake.store.close()
    session.stop()


def build_worker(lake: Lake, settings: ServerSettings, session: SparkSession, owner: str) -> JobWorker:
    executor = SparkStageExecutor(session, f"{settings.job_files}/stages")
    publisher = LancePublisher(lake.versions, lake.data)
    checkpoints = LanceCheckpoints(f"{settings.job_files}/checkpoints", lake.data, lake.sources)
    return JobWorker(
        lake.store,
        owner,
        settings.lease_policy(),
        {
            BackfillRequest: BackfillRunner(lake.store, lake.assessor, executor, publisher, checkpoints),
            RefreshRequest: RefreshRunner(lake.store, lake.assessor, lake.sources, executor, publisher),
            IndexRequest: IndexRunner(lake.store, lake.versions, LanceTableIndexes(lake.versions, lake.data)),
        },
    )


def _run_one(worker: JobWorker, session: SparkSession) -> bool:
    """Whether there was a job to do."""
    try:
        job = worker.claim()
    except Unavailable as error:
        log.warning("the database does not answer", error=str(error))
        return False
    if job is not None:
        _run(worker, session, job)
    return job is not None


def _run(worker: JobWorker, session: SparkSession, job: Job) -> None:
    log.info("job started", job=job.job_id, kind=job.kind, table=str(job.table), epoch=job.epoch)
    try:
        worker.run(job)
    except Exception as error:
        if not _is_alive(session):
            worker.release(job)
            raise SparkDied(f"Spark went away during job {job.job_id}") from error
        log.exception("job failed unexpectedly", job=job.job_id)
        name = type(error).__name__
        worker.fail(job, Failure(f"{name}: {error}", name, traceback.format_exc()))
    log.info("job ended", job=job.job_id)


def _is_alive(session: SparkSession) -> bool:
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def _show_life(lake: Lake, owner: str, is_stopping: Event) -> None:
    while True:
        try:
            with lake.store.transaction() as tx:
                tx.workers.beat(owner)
        except Unavailable as error:
            log.warning("the database does not answer", error=str(error))
        if is_stopping.wait(BEAT_SECONDS):
            return
