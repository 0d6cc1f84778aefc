"""The worker process: one Spark session, one job at a time.

The main thread claims and runs jobs. Between jobs it waits for the next poll, or until the server that
started it writes to its standard input because a job was submitted. Two more threads run beside it: one
records that the worker is alive, the other runs maintenance (auto-backfill, auto-refresh, purges, old
checkpoints). A maintenance task that fails is logged and tried again when it is next due, so that it cannot
stop the others.

A process has one Spark session, so each cluster has its own workers. If the session dies, the worker releases
its job and exits, and the server that started it starts another. If it kept running, it would fail every job
it claims.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from threading import Event, Thread
from time import monotonic
from typing import Final

import structlog

from tidemill.catalog.model.callers import BACKFILL_CALLER, REFRESH_CALLER
from tidemill.errors import TidemillError, Unavailable
from tidemill.jobs.model.jobs import Failure, Job
from tidemill.jobs.model.options import (
    BackfillRequest,
    IndexRequest,
    PreviewRequest,
    RefreshRequest,
    VerifyRequest,
)
from tidemill.jobs.worker.auto_jobs import AutoBackfill, AutoRefresh
from tidemill.jobs.worker.backfill import BackfillRunner
from tidemill.jobs.worker.indexing import IndexRunner
from tidemill.jobs.worker.leases import JobWorker
from tidemill.jobs.worker.preview import PreviewRunner
from tidemill.jobs.worker.refresh import RefreshRunner, ViewEvaluator
from tidemill.jobs.worker.verify import VerifyRunner
from tidemill.lance.checkpoints import LanceCheckpoints
from tidemill.lance.indexes import LanceTableIndexes
from tidemill.lance.publisher import LancePublisher
from tidemill.server.access_control import AllowEverything
from tidemill.server.bootstrap import Adapters, build_jobs, build_purger, open_adapters
from tidemill.server.processes import configure_logs, stop_with_stdin
from tidemill.server.settings import ServerSettings
from tidemill.spark.cluster import SparkCluster, open_cluster
from tidemill.spark.executor import SparkStageExecutor, prepare_functions

HEARTBEAT_SECONDS: Final = 2.0
CHECKPOINT_CLEANUP_SECONDS: Final = 3600.0
PURGE_SECONDS: Final = 60.0
CHECKPOINT_AGE: Final = timedelta(days=7)

log = structlog.get_logger("tidemill.worker")


class SparkDied(Exception):
    """The Spark session has ended; only a new process can open another."""


def work(settings: ServerSettings) -> None:
    """Runs jobs until a signal or, with `exit_with_stdin`, the end of standard input."""
    configure_logs(settings.log_level)
    target = settings.spark_target(settings.cluster)
    # Spark reads the interpreter of its Python workers only from this variable; others would lack our code.
    os.environ["PYSPARK_PYTHON"] = target.config.get("spark.pyspark.python", sys.executable)
    is_stopping, wakeup = Event(), Event()
    worker: JobWorker | None = None

    def stop() -> None:
        is_stopping.set()
        wakeup.set()
        if worker is None:
            # Still starting: there is no job to release, and Spark ends with this process.
            os._exit(0)
        worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())
    if settings.exit_with_stdin:
        stop_with_stdin(stop, wakeup.set)
    adapters = open_adapters(settings, AllowEverything())
    owner = f"{socket.gethostname()}:{os.getpid()}"
    cluster = open_cluster(target)
    cluster.warm_up()
    prepare_functions(cluster, settings.function_host())
    worker = build_worker(adapters, settings, cluster, owner)
    Thread(target=_send_heartbeats, args=(adapters, owner, is_stopping), name="liveness", daemon=True).start()
    maintenance = (adapters, settings, wakeup, is_stopping)
    Thread(target=_run_maintenance, args=maintenance, name="maintenance", daemon=True).start()
    log.info("worker ready", owner=owner, cluster=settings.cluster, master=target.master)
    try:
        while not is_stopping.is_set():
            wakeup.clear()
            if not _run_next_job(worker, cluster):
                wakeup.wait(settings.job_poll_seconds)
    finally:
        adapters.store.close()
    cluster.stop()


def build_worker(
    adapters: Adapters, settings: ServerSettings, cluster: SparkCluster, owner: str
) -> JobWorker:
    executor = SparkStageExecutor(cluster, f"{settings.job_files}/stages", settings.function_host())
    publisher = LancePublisher(adapters.versions, adapters.data)
    checkpoints = _checkpoints(adapters, settings)
    evaluator = ViewEvaluator(adapters.view_assessor, adapters.sources, executor, adapters.clusters)
    return JobWorker(
        adapters.store,
        owner,
        settings.lease_policy(),
        {
            BackfillRequest: BackfillRunner(
                adapters.store, adapters.assessor, executor, publisher, checkpoints, adapters.clusters
            ),
            PreviewRequest: PreviewRunner(adapters.assessor, adapters.sources, executor, checkpoints),
            RefreshRequest: RefreshRunner(
                adapters.store, adapters.view_assessor, adapters.sources, evaluator, publisher
            ),
            VerifyRequest: VerifyRunner(adapters.view_assessor, adapters.sources, evaluator),
            IndexRequest: IndexRunner(
                adapters.store, adapters.versions, LanceTableIndexes(adapters.versions, adapters.data)
            ),
        },
        settings.cluster,
    )


def _run_next_job(worker: JobWorker, cluster: SparkCluster) -> bool:
    """Returns whether there was a job to run."""
    try:
        job = worker.claim()
    except Unavailable as error:
        log.warning("the database does not respond", error=str(error))
        return False
    if job is not None:
        _run(worker, cluster, job)
    return job is not None


def _run(worker: JobWorker, cluster: SparkCluster, job: Job) -> None:
    log.info("job started", job=job.job_id, kind=job.kind, table=str(job.table), epoch=job.epoch)
    try:
        worker.run(job)
    except Exception as error:
        if not cluster.is_alive():
            worker.release(job)
            raise SparkDied(f"Spark died during job {job.job_id}") from error
        log.exception("job failed unexpectedly", job=job.job_id)
        name = type(error).__name__
        worker.fail(job, Failure(f"{name}: {error}", name, traceback.format_exc()))
    log.info("job ended", job=job.job_id)


def _send_heartbeats(adapters: Adapters, owner: str, is_stopping: Event) -> None:
    while True:
        try:
            with adapters.store.transaction() as tx:
                tx.workers.beat(owner)
        except Unavailable as error:
            log.warning("the database does not respond", error=str(error))
        if is_stopping.wait(HEARTBEAT_SECONDS):
            return


@dataclass
class MaintenanceTask:
    """Periodic work of the worker."""

    name: str
    interval_seconds: float
    action: Callable[[], object]
    due_at: float = 0

    def run_if_due(self) -> None:
        if monotonic() < self.due_at:
            return
        try:
            self.action()
        except (TidemillError, OSError) as error:
            log.warning("maintenance task will be retried", task=self.name, error=str(error))
        except Exception:
            # The other tasks must still run, and this one may succeed next time.
            log.exception("maintenance task failed", task=self.name)
        self.due_at = monotonic() + self.interval_seconds


def _run_maintenance(adapters: Adapters, settings: ServerSettings, wakeup: Event, is_stopping: Event) -> None:
    """Runs auto-backfill, auto-refresh, purges and the removal of old checkpoints when they are due."""
    tasks = _maintenance_tasks(adapters, settings, wakeup)
    while not is_stopping.wait(max(min(task.due_at for task in tasks) - monotonic(), 0)):
        for task in tasks:
            task.run_if_due()


def _maintenance_tasks(adapters: Adapters, settings: ServerSettings, wakeup: Event) -> list[MaintenanceTask]:
    jobs, checkpoints = build_jobs(adapters, wakeup.set), _checkpoints(adapters, settings)
    columns = AutoBackfill(
        adapters.store,
        adapters.assessor,
        jobs.submit_backfill,
        BACKFILL_CALLER,
        settings.auto_backfill_policy(),
    )
    views = AutoRefresh(
        adapters.store,
        adapters.versions,
        adapters.view_assessor,
        jobs.submit_refresh,
        REFRESH_CALLER,
        settings.auto_refresh_policy(),
    )
    return [
        MaintenanceTask("columns", settings.auto_backfill_poll_seconds, columns.look),
        MaintenanceTask("views", settings.auto_refresh_poll_seconds, views.look),
        MaintenanceTask(
            "dropped tables", PURGE_SECONDS, build_purger(adapters.store, adapters.files).purge_waiting
        ),
        MaintenanceTask("checkpoints", CHECKPOINT_CLEANUP_SECONDS, lambda: checkpoints.sweep(CHECKPOINT_AGE)),
    ]


def _checkpoints(adapters: Adapters, settings: ServerSettings) -> LanceCheckpoints:
    return LanceCheckpoints(f"{settings.job_files}/checkpoints", adapters.data, adapters.sources)
