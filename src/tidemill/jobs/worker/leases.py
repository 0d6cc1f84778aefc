"""A worker's way with jobs: claim one, keep its lease alive, do it, say how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Event, Thread
from time import monotonic
from typing import Any, Final, Protocol

from tidemill.catalog.auditing import AuditedAction, acting
from tidemill.catalog.errors import TableNotFound
from tidemill.catalog.model.audit import AuditProtocol
from tidemill.catalog.model.tables import Table
from tidemill.errors import CommitStateUnknown, TidemillError, Unavailable
from tidemill.jobs.errors import JobCancelled, JobPaused, LeaseLost
from tidemill.jobs.model.jobs import DEFAULT_CLUSTER, Failure, Job, JobState, Lease, Part, Progress
from tidemill.jobs.model.options import JobRequest
from tidemill.jobs.ports import JobStore, JobTransaction
from tidemill.jobs.stage_errors import RowFailed

REPORT_SECONDS: Final = 0.5
MAX_MESSAGE: Final = 4096
MAX_TRACEBACK: Final = 16384


class RunningJob:
    """What the code that does the work holds: it reports here and is told here to stop."""

    def __init__(self, store: JobStore, job: Job, owner: str) -> None:
        self._store = store
        self.job = job
        self.lease = Lease(job.job_id, job.epoch, owner)
        # A job taken over starts its figures anew: they tell of this run.
        self.progress = Progress()
        self.is_lost = Event()
        self.is_cancelled = Event()
        self.is_pausing = Event()
        self._stage_start = 0
        self._reported_at = 0.0

    def get_table(self) -> Table:
        """The job's table by its id: its name may have changed since the job was read."""
        with self._store.transaction() as tx:
            table = tx.tables.find_by_id(self.job.table_id)
        if table is None:
            raise TableNotFound(self.job.table)
        return table

    def check(self) -> None:
        if self.is_lost.is_set():
            raise LeaseLost(self.job.job_id, self.lease.epoch)
        if self.is_cancelled.is_set():
            raise JobCancelled(self.job.job_id)
        if self.is_pausing.is_set():
            raise JobPaused(self.job.job_id)

    def apply_signals(self, job: Job) -> None:
        """Notes what the job's row asks for."""
        if job.cancel_requested_at is not None:
            self.is_cancelled.set()
        if job.pause_requested_at is not None:
            self.is_pausing.set()

    def begin_stage(self) -> None:
        self._stage_start = self.progress.done

    def rows_done(self, rows: int) -> None:
        # A task that Spark runs again counts its rows again.
        done = min(max(self.progress.done, self._stage_start + rows), self.progress.total)
        if done != self.progress.done:
            self.progress = replace(self.progress, done=done)
            if monotonic() - self._reported_at >= REPORT_SECONDS:
                self.report()

    def report(self) -> None:
        self._reported_at = monotonic()
        with self._store.transaction() as tx:
            tx.leases.record_progress(self.lease, self.progress)

    def tell(self, kind: str, data: dict[str, Any]) -> None:
        with self._store.transaction() as tx:
            tx.leases.check(self.lease)
            tx.events.append(self.job.job_id, kind, data)

    def record(self, tx: JobTransaction, part: Part) -> None:
        """Puts an effect under the lease and into the ledger; belongs into the effect's own transaction."""
        tx.leases.check(self.lease)
        tx.parts.add(part)
        tx.leases.record_progress(self.lease, self.progress)


SPARK_NOT_STARTED: Final = "spark_not_started"
SPARK_DIED: Final = "spark_died"


@dataclass(frozen=True)
class LeasePolicy:
    """How long a claim holds without a sign of life, and how often one is given."""

    duration: timedelta = timedelta(seconds=30)
    heartbeat: timedelta = timedelta(seconds=10)
    # How often a running job looks whether it should stop.
    cancel_poll: timedelta = timedelta(seconds=1)
    # A job that kills every worker it is given to has to end, too.
    max_attempts: int = 10
    # Spark takes its worker with it when it dies, and all other jobs wait for the next one.
    max_spark_deaths: int = 3


class JobRunner(Protocol):
    """Does what requests of one type ask for."""

    def run(self, running: RunningJob, request: Any) -> dict[str, Any]:
        """Returns what the job's result says."""


class JobWorker:
    def __init__(
        self,
        store: JobStore,
        owner: str,
        policy: LeasePolicy,
        runners: Mapping[type[JobRequest], JobRunner],
        cluster: str = DEFAULT_CLUSTER,
        check: Callable[[Job], None] = lambda job: None,
    ) -> None:
        """`check` raises for a job that may not run any more."""
        self._check = check
        self._store = store
        self._owner = owner
        self._policy = policy
        self._runners = runners
        self._cluster = cluster
        self._current: RunningJob | None = None

    def claim(self) -> Job | None:
        with self._store.transaction() as tx:
            job = tx.leases.claim(self._owner, self._policy.duration, self._cluster)
            if job is not None:
                kind = "started" if job.epoch == 1 else "taken_over"
                tx.events.append(job.job_id, kind, {"owner": self._owner, "epoch": job.epoch})
        return job

    def run(self, job: Job) -> None:
        """Does the job; whatever it raises, other than losing the lease, is how it ended."""
        running = RunningJob(self._store, job, self._owner)
        self._current = running
        running.apply_signals(job)
        reason = self._reason_to_give_up(job)
        if reason is not None:
            self._finish(running, JobState.FAILED, None, Failure(reason))
            return
        with self._kept_alive(running), suppress(LeaseLost), acting(_publication(job)):
            try:
                running.check()
                self._check(job)
                result = self._runners[type(job.request)].run(running, job.request)
            except LeaseLost:
                raise
            except JobCancelled:
                self._finish(running, JobState.CANCELLED, None, None)
            except JobPaused:
                self._put_down(running)
            except CommitStateUnknown as error:
                self._hand_back(running, error)
            except TidemillError as error:
                self._finish(running, JobState.FAILED, None, failure_of(error))
            else:
                self._finish(running, JobState.DONE, result, None)

    def stop(self) -> None:
        """Lets go of the job at hand, so that another worker can take it up at once."""
        running = self._current
        if running is not None:
            running.is_lost.set()
            self.release(running.job)

    def release(self, job: Job) -> None:
        with self._store.transaction() as tx:
            tx.leases.release(Lease(job.job_id, job.epoch, self._owner))

    def give_back(self, job: Job, kind: str, reason: str) -> None:
        """Releases a job that this process cannot run, and records why."""
        with suppress(LeaseLost), self._store.transaction() as tx:
            lease = Lease(job.job_id, job.epoch, self._owner)
            tx.leases.check(lease)
            tx.events.append(job.job_id, kind, {"message": reason})
            tx.leases.release(lease)

    def _reason_to_give_up(self, job: Job) -> str | None:
        if job.attempt == 1:
            return None
        with self._store.reading() as tx:
            events = tx.events.list_after(job.job_id, 0)
        deaths = [event.data["message"] for event in events if event.kind == SPARK_DIED]
        if len(deaths) >= self._policy.max_spark_deaths:
            return f"given up: Spark died {len(deaths)} times while it ran this job. {deaths[-1]}"
        if job.attempt <= self._policy.max_attempts:
            return None
        message = f"given up: {job.attempt - 1} workers took the job and none came to its end"
        reasons = [event.data["message"] for event in events if event.kind == SPARK_NOT_STARTED]
        return f"{message}. {reasons[-1]}" if reasons else message

    def fail(self, job: Job, failure: Failure) -> None:
        """Ends a job that met an error nobody foresaw."""
        with suppress(LeaseLost):
            self._finish(RunningJob(self._store, job, self._owner), JobState.FAILED, None, failure)

    def _put_down(self, running: RunningJob) -> None:
        with self._store.transaction() as tx:
            job = tx.leases.suspend(running.lease, running.progress)
            tx.events.append(job.job_id, job.state.value.lower(), {})

    def _hand_back(self, running: RunningJob, error: CommitStateUnknown) -> None:
        """Lets the job be claimed again: the next attempt finds out whether the commit happened."""
        with self._store.transaction() as tx:
            tx.events.append(running.job.job_id, "outcome_unknown", {"message": str(error)})
            tx.leases.release(running.lease)

    def _finish(
        self, running: RunningJob, state: JobState, result: dict[str, Any] | None, failure: Failure | None
    ) -> None:
        failure = None if failure is None else bounded(failure)
        ended = replace(running.job, state=state, progress=running.progress, result=result, failure=failure)
        with self._store.transaction() as tx:
            tx.leases.finish(running.lease, ended)
            said: dict[str, object] = {} if failure is None else {"message": failure.message}
            tx.events.append(running.job.job_id, state.value.lower(), said)

    @contextmanager
    def _kept_alive(self, running: RunningJob) -> Iterator[None]:
        is_over = Event()
        heart = Thread(target=self._beat, args=(running, is_over), name="heartbeat", daemon=True)
        heart.start()
        try:
            yield
        finally:
            is_over.set()
            heart.join()

    def _beat(self, running: RunningJob, is_over: Event) -> None:
        """Renews the lease, and between two renewals looks whether somebody stopped the job."""
        beats_every = max(1, round(self._policy.heartbeat / self._policy.cancel_poll))
        count = 0
        while not is_over.wait(self._policy.cancel_poll.total_seconds()):
            count += 1
            # A database that does not answer now may answer before the lease is over.
            with suppress(Unavailable):
                try:
                    self._look(running, is_renewal=count % beats_every == 0)
                except LeaseLost:
                    running.is_lost.set()
                    return

    def _look(self, running: RunningJob, *, is_renewal: bool) -> None:
        with self._store.transaction() as tx:
            if is_renewal:
                job = tx.leases.renew(running.lease, self._policy.duration)
            else:
                job = tx.jobs.get(running.job.job_id)
        if job.epoch != running.lease.epoch:
            raise LeaseLost(job.job_id, running.lease.epoch)
        running.apply_signals(job)


def bounded(failure: Failure) -> Failure:
    """A failure of a size that a row and a page can show, whatever a library put into its message."""
    traceback = None if failure.traceback is None else failure.traceback[-MAX_TRACEBACK:]
    return replace(failure, message=failure.message[:MAX_MESSAGE], traceback=traceback)


def _publication(job: Job) -> AuditedAction:
    """Commits of the job are audited; its progress is not."""
    return AuditedAction(
        job.submitted_by,
        AuditProtocol.WORKER,
        f"publish {job.kind.value}",
        is_mutation=False,
        job_id=job.job_id,
    )


def failure_of(error: TidemillError) -> Failure:
    if isinstance(error, RowFailed):
        failed = error.failure
        return Failure(str(error), failed.exception, failed.traceback, failed.row_id)
    return Failure(str(error), exception=type(error).__name__)
