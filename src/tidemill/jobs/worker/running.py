"""A job at work: its lease, its figures, and when to stop."""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from time import monotonic
from typing import Any, Final

from tidemill.catalog.errors import TableNotFound
from tidemill.catalog.model.tables import Table
from tidemill.jobs.errors import JobCancelled, JobPaused, LeaseLost
from tidemill.jobs.model.jobs import Job, Lease, Part, Progress
from tidemill.jobs.ports import JobStore, JobTransaction

REPORT_SECONDS: Final = 0.5


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
