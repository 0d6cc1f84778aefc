"""The worker process: one Spark session, one job at a time.

Spark starts in a thread of its own. The main thread claims and runs jobs from the beginning: a job that has
nothing to do ends before Spark has started, and others wait for Spark at their first stage. Between jobs it
waits for the next poll, or until the server that started it writes to its standard input because a job was
submitted. Two more threads run beside it: one records that the worker is alive, the other runs maintenance
(auto-backfill, auto-refresh, purges, old checkpoints). A maintenance task that fails is logged and tried
again when it is next due, so that it cannot stop the others.

A process has one Spark session, so each cluster has its own workers. If the session dies, the worker releases
its job and exits, and the server that started it starts another. If it kept running, it would fail every job
it claims. The same happens if the session does not start.
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
from typing import Final, TypeVar

import structlog

from tidemill.catalog.auditing import AuditedAction, acting, acting_as_server
from tidemill.catalog.model.audit import AuditProtocol
from tidemill.catalog.model.callers import BACKFILL_CALLER, REFRESH_CALLER, Caller
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import TidemillError, Unavailable
from tidemill.functions.isolation.pool import FunctionHost
from tidemill.iceberg.operations.purges import Purger
from tidemill.jobs.model.jobs import Failure, Job
from tidemill.jobs.model.options import (
    BackfillRequest,
    IndexRequest,
    PreviewRequest,
    RefreshRequest,
    VerifyRequest,
)
from tidemill.jobs.owners import OwnerRights
from tidemill.jobs.ports import JobStore
from tidemill.jobs.worker.auto_jobs import AutoBackfill, AutoRefresh
from tidemill.jobs.worker.backfill import BackfillRunner
from tidemill.jobs.worker.indexing import IndexRunner
from tidemill.jobs.worker.leases import SPARK_DIED, SPARK_NOT_STARTED, JobWorker
from tidemill.jobs.worker.preview import PreviewRunner
from tidemill.jobs.worker.refresh import RefreshRunner, ViewEvaluator
from tidemill.jobs.worker.verify import VerifyRunner
from tidemill.lance.checkpoints import LanceCheckpoints
from tidemill.lance.indexes import LanceTableIndexes
from tidemill.lance.publisher import LancePublisher
from tidemill.lance.view_results import LanceViewResults
from tidemill.server.access.grants import AllowEverything
from tidemill.server.bootstrap import Adapters, build_jobs, build_purger, open_adapters
from tidemill.server.processes import configure_logs, stop_with_stdin
from tidemill.server.settings import ServerSettings
from tidemill.spark.cluster import SparkCluster, open_cluster
from tidemill.spark.executor import SparkStageExecutor, prepare_functions
from tidemill.spark.startup import SparkNotStarted, SparkStart
from tidemill.spark.target import SparkTarget
from tidemill.store.engine import SqlStore

HEARTBEAT_SECONDS: Final = 2.0
CHECKPOINT_CLEANUP_SECONDS: Final = 3600.0
PURGE_SECONDS: Final = 60.0
AUDIT_CLEANUP_SECONDS: Final = 60.0
AUDIT_BATCHES: Final = 50
CHECKPOINT_AGE: Final = timedelta(days=7)
MAX_REASON: Final = 500

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
    adapters = open_adapters(settings, AllowEverything())
    owner = f"{socket.gethostname()}:{os.getpid()}"
    spark = SparkStart.begin(lambda: start_cluster(target, settings.function_host()), wakeup.set)
    worker = build_worker(adapters, settings, spark, owner)

    def stop() -> None:
        is_stopping.set()
        wakeup.set()
        worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())
    if settings.exit_with_stdin:
        stop_with_stdin(stop, wakeup.set)
    Thread(target=_send_heartbeats, args=(adapters, owner, is_stopping), name="liveness", daemon=True).start()
    maintenance = (adapters, settings, wakeup, is_stopping)
    Thread(target=_run_maintenance, args=maintenance, name="maintenance", daemon=True).start()
    log.info("worker ready", owner=owner, cluster=settings.cluster, master=target.master)
    try:
        while not is_stopping.is_set():
            wakeup.clear()
            spark.find()
            if not _run_next_job(worker, spark):
                wakeup.wait(settings.job_poll_seconds)
    finally:
        adapters.store.close()
    _stop_spark(spark)


def start_cluster(target: SparkTarget, host: FunctionHost) -> SparkCluster:
    """Opens the session and warms it up, so that the first stage does not wait for imports."""
    cluster = open_cluster(target)
    cluster.warm_up()
    prepare_functions(cluster, host)
    log.info("Spark started", master=target.master)
    return cluster


def _stop_spark(spark: SparkStart) -> None:
    cluster = spark.find()
    if cluster is None:
        # Still starting: Spark ends with this process, and waiting for it would only delay that.
        os._exit(0)
    cluster.stop()


def build_worker(adapters: Adapters, settings: ServerSettings, spark: SparkStart, owner: str) -> JobWorker:
    executor = SparkStageExecutor(
        spark, f"{settings.job_files}/stages", settings.function_host(), adapters.cipher
    )
    publisher = LancePublisher(adapters.versions, adapters.data)
    checkpoints = _checkpoints(adapters, settings)
    results = LanceViewResults(f"{settings.job_files}/fingerprints", checkpoints)
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
                adapters.store, adapters.view_assessor, adapters.sources, evaluator, publisher, results
            ),
            VerifyRequest: VerifyRunner(adapters.view_assessor, adapters.sources, evaluator),
            IndexRequest: IndexRunner(
                adapters.store, adapters.versions, LanceTableIndexes(adapters.versions, adapters.data)
            ),
        },
        settings.cluster,
        owner_rights(adapters).check_job,
    )


def owner_rights(adapters: Adapters) -> OwnerRights:
    """What owners are granted now. The worker itself may do everything: its jobs were authorized."""
    return OwnerRights(adapters.store, adapters.grants)


def _run_next_job(worker: JobWorker, spark: SparkStart) -> bool:
    """Returns whether there was a job to run."""
    try:
        job = worker.claim()
        if job is not None:
            _run(worker, spark, job)
    except Unavailable as error:
        # A job whose end could not be recorded is taken up again once its lease is over.
        log.warning("the database does not respond", error=str(error))
        return False
    return job is not None


def _run(worker: JobWorker, spark: SparkStart, job: Job) -> None:
    log.info("job started", job=job.job_id, kind=job.kind, table=str(job.table), epoch=job.epoch)
    try:
        worker.run(job)
    except SparkNotStarted as error:
        worker.give_back(job, SPARK_NOT_STARTED, str(error))
        raise
    except Exception as error:
        cluster = spark.find()
        if cluster is not None and not cluster.is_alive():
            worker.give_back(
                job, SPARK_DIED, f"The last error was {type(error).__name__}: {error}"[:MAX_REASON]
            )
            raise SparkDied(f"Spark died during job {job.job_id}") from error
        log.exception("job failed unexpectedly", job=job.job_id)
        name = type(error).__name__
        worker.fail(job, Failure(f"{name}: {error}", name, traceback.format_exc()))
    log.info("job ended", job=job.job_id)
    cluster = spark.find()
    if cluster is not None and not cluster.is_alive():
        # The next job must not be blamed for it.
        raise SparkDied(f"Spark died during job {job.job_id}")


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
    owners = owner_rights(adapters)
    columns = AutoBackfill(
        adapters.store,
        adapters.assessor,
        _audited("submit backfill", jobs.submit_backfill),
        BACKFILL_CALLER,
        settings.auto_backfill_policy(),
        owners.check_column,
    )
    views = AutoRefresh(
        adapters.store,
        adapters.versions,
        adapters.view_assessor,
        _audited("submit refresh", jobs.submit_refresh),
        REFRESH_CALLER,
        settings.auto_refresh_policy(),
        owners.check_view,
    )
    return [
        MaintenanceTask("columns", settings.auto_backfill_poll_seconds, columns.look),
        MaintenanceTask("views", settings.auto_refresh_poll_seconds, views.look),
        MaintenanceTask(
            "dropped tables", PURGE_SECONDS, lambda: _purge(build_purger(adapters.store, adapters.files))
        ),
        MaintenanceTask("checkpoints", CHECKPOINT_CLEANUP_SECONDS, lambda: checkpoints.sweep(CHECKPOINT_AGE)),
        MaintenanceTask(
            "fingerprints", CHECKPOINT_CLEANUP_SECONDS, lambda: _sweep_segments(adapters.store, checkpoints)
        ),
        *_audit_tasks(adapters.store, settings.audit_retention_days),
    ]


def _audit_tasks(store: SqlStore, retention_days: int) -> list[MaintenanceTask]:
    """Nothing if events are kept for ever."""
    if not retention_days:
        return []
    retention = timedelta(days=retention_days)
    return [MaintenanceTask("audit", AUDIT_CLEANUP_SECONDS, lambda: remove_old_events(store, retention))]


RequestT = TypeVar("RequestT")
Submit = Callable[[Caller, TableIdent, RequestT, str | None], Job]


def _audited(operation: str, submit: Submit[RequestT]) -> Submit[RequestT]:
    """Submits jobs that nobody asked for."""

    def submitted(caller: Caller, ident: TableIdent, request: RequestT, key: str | None) -> Job:
        with acting(AuditedAction(caller.principal, AuditProtocol.SERVER, operation)):
            return submit(caller, ident, request, key)

    return submitted


def _purge(purger: Purger) -> None:
    with acting_as_server("purge dropped tables"):
        purger.purge_waiting()


def remove_old_events(store: SqlStore, retention: timedelta) -> int:
    """Removes audit events in batches, each in a transaction of its own, so that nobody waits for long."""
    removed = 0
    for _ in range(AUDIT_BATCHES):
        with store.transaction() as tx:
            count = tx.audit.remove_before(tx.now() - retention)
        removed += count
        if not count:
            break
    return removed


def _sweep_segments(store: JobStore, checkpoints: LanceCheckpoints) -> None:
    with store.reading() as tx:
        used = tx.coverage.segments_in_use()
    checkpoints.sweep_segments(CHECKPOINT_AGE, used)


def _checkpoints(adapters: Adapters, settings: ServerSettings) -> LanceCheckpoints:
    return LanceCheckpoints(f"{settings.job_files}/checkpoints", adapters.data, adapters.sources)
