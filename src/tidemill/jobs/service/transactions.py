"""Jobs as transactions: what the protocol's describe and alter see of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.transactions import Transaction, TransactionStatus
from tidemill.catalog.ports import Authorizer
from tidemill.jobs.errors import JobNotFound
from tidemill.jobs.model.jobs import IndexRequest, Job
from tidemill.jobs.model.state import JobState
from tidemill.jobs.ports import JobStore, JobTransaction

STATUSES: Final[Mapping[JobState, TransactionStatus]] = {
    JobState.QUEUED: TransactionStatus.QUEUED,
    JobState.PAUSED: TransactionStatus.QUEUED,
    JobState.RUNNING: TransactionStatus.RUNNING,
    JobState.DONE: TransactionStatus.SUCCEEDED,
    JobState.FAILED: TransactionStatus.FAILED,
    JobState.CANCELLED: TransactionStatus.CANCELED,
}


class JobTransactions:
    def __init__(self, store: JobStore, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    def find(self, caller: Caller, transaction_id: str) -> Transaction | None:
        try:
            with self._store.transaction() as tx:
                job = tx.jobs.get(transaction_id)
        except JobNotFound:
            return None
        self._authorizer.require(caller, Permission.READ, job.table)
        return Transaction(job.job_id, job.table, STATUSES[job.state], _properties(job))

    def cancel(self, caller: Caller, tx: JobTransaction, transaction_id: str) -> None:
        self._authorizer.require(caller, Permission.COMPUTE, tx.jobs.get(transaction_id).table)
        tx.jobs.request_cancel(transaction_id)
        tx.events.append(transaction_id, "cancel_requested", {"by": caller.principal})


def _properties(job: Job) -> dict[str, str]:
    said: dict[str, str | None] = {
        "job_id": job.job_id,
        "operation": job.kind.value,
        "column": job.column,
        "created_at": job.created_at.isoformat(),
        "finished_at": None if job.finished_at is None else job.finished_at.isoformat(),
        "error": None if job.failure is None else job.failure.message,
    }
    if isinstance(job.request, IndexRequest):
        said |= {"index_name": job.request.name, "branch": job.request.branch}
    if job.result is not None and "version" in job.result:
        said["version"] = str(job.result["version"])
    return {key: value for key, value in said.items() if value is not None}
