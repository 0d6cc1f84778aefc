"""Transactions of the Lance protocol: commits, read from Lance's log, and running jobs.

Callers can describe them, set properties, and cancel those that are running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, TypeAlias, assert_never
from uuid import UUID

import lance
from lance import Transaction as LanceTransaction

from tidemill.catalog.errors import (
    ConcurrentModification,
    NamespaceNotFound,
    TableHasNoData,
    TableNotFound,
    TransactionNotFound,
)
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent, table_ident
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.catalog.ports import Authorizer
from tidemill.errors import InvalidInput
from tidemill.jobs.errors import JobNotFound
from tidemill.jobs.model.jobs import Job, JobState
from tidemill.jobs.model.options import IndexRequest
from tidemill.jobs.ports import JobStore, JobTransaction
from tidemill.lance.changes import is_compaction_of_indexes
from tidemill.lance.datasets import LanceTableData, translated
from tidemill.lance.versions.commit import VersionOperations

# The search for a commit by UUID goes back from the latest version and reads one small file for each.
VERSIONS_SEARCHED = 1000


class TransactionStatus(Enum):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


class SetMode(Enum):
    """What to do if the key exists."""

    OVERWRITE = "Overwrite"
    FAIL = "Fail"
    SKIP = "Skip"


class UnsetMode(Enum):
    """What to do if the key does not exist."""

    SKIP = "Skip"
    FAIL = "Fail"


@dataclass(frozen=True, slots=True)
class Transaction:
    """`key` identifies it even if the table is renamed. `properties` are set by the server."""

    key: str
    table: TableIdent
    status: TransactionStatus
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetStatus:
    status: TransactionStatus


@dataclass(frozen=True, slots=True)
class SetProperty:
    key: str
    value: str
    mode: SetMode = SetMode.OVERWRITE


@dataclass(frozen=True, slots=True)
class UnsetProperty:
    key: str
    mode: UnsetMode = UnsetMode.SKIP


TransactionAction: TypeAlias = SetStatus | SetProperty | UnsetProperty


class TransactionOperations:
    """Ids: a job id, alone or after the table id; or a table id with a version or a commit UUID."""

    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        versions: VersionOperations,
        data: LanceTableData,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._versions = versions
        self._history = LanceCommitHistory(data)
        self._running = JobTransactions(store, authorizer)

    def describe(self, caller: Caller, levels: Sequence[str]) -> Transaction:
        transaction = self._get(caller, levels)
        with self._store.transaction() as tx:
            transaction_properties = tx.transaction_properties.get(transaction.key)
        return _with_properties(transaction, transaction_properties)

    def alter(
        self, caller: Caller, levels: Sequence[str], actions: Sequence[TransactionAction]
    ) -> Transaction:
        """Applies all of the actions or none."""
        transaction = self._get(caller, levels)
        self._authorizer.require(caller, Permission.WRITE, transaction.table)
        with self._store.transaction() as tx:
            before = tx.transaction_properties.get(transaction.key)
            after = dict(before)
            for index, action in enumerate(actions):
                match action:
                    case SetStatus():
                        if _is_cancelling(transaction, action.status):
                            self._running.cancel(caller, tx, transaction.key)
                    case SetProperty() | UnsetProperty():
                        _apply_action(transaction, after, action, f"actions[{index}]")
                    case _:
                        assert_never(action)
            if after != before:
                tx.transaction_properties.put(transaction.key, before, after)
        return _with_properties(self._get(caller, levels), after)

    def _get(self, caller: Caller, levels: Sequence[str]) -> Transaction:
        if not levels or not all(levels):
            raise InvalidInput("id", "must name a transaction: a job, or a table and one of its versions")
        *above, last = levels
        running = self._running.find(caller, last)
        if running is not None:
            if above and tuple(above) != running.table.levels:
                raise TransactionNotFound(last)
            return running
        transaction = self._find_commit(caller, table_ident(tuple(above)), last) if above else None
        if transaction is None:
            raise TransactionNotFound(".".join(levels))
        return transaction

    def _find_commit(self, caller: Caller, ident: TableIdent, last: str) -> Transaction | None:
        self._authorizer.require(caller, Permission.READ, ident)
        try:
            table = self._versions.get_branch(ident, MAIN_BRANCH)
            latest = self._versions.get_latest(table)
        except (NamespaceNotFound, TableNotFound, TableHasNoData):
            return None
        if last.isascii() and last.isdigit() and len(last) < 19:
            return self._find_version(table, int(last))
        if not _is_uuid(last):
            return None
        with self._store.transaction() as tx:
            newest = tx.versions.list_page(
                table.table_id, table.branch, latest.version + 1, VERSIONS_SEARCHED, is_descending=True
            )
        return self._history.find_by_uuid(table, last.lower(), [version.version for version in newest])

    def _find_version(self, table: Table, version: int) -> Transaction | None:
        return None if self._versions.find(table, version) is None else self._history.find(table, version)


def _with_properties(transaction: Transaction, transaction_properties: Mapping[str, str]) -> Transaction:
    return replace(transaction, properties={**transaction_properties, **transaction.properties})


def _is_cancelling(transaction: Transaction, new_status: TransactionStatus) -> bool:
    """The only possible change of status is to cancel. Setting the current status changes nothing."""
    if new_status is transaction.status:
        return False
    is_open = transaction.status in (TransactionStatus.QUEUED, TransactionStatus.RUNNING)
    if not is_open or new_status is not TransactionStatus.CANCELED:
        raise ConcurrentModification(
            f"Transaction {transaction.key} is {transaction.status.value} "
            f"and cannot become {new_status.value}"
        )
    return True


def _apply_action(
    transaction: Transaction,
    transaction_properties: dict[str, str],
    action: SetProperty | UnsetProperty,
    field: str,
) -> None:
    if action.key in transaction.properties:
        raise InvalidInput(f"{field}.key", f"{action.key!r:.60} is set by the server and cannot be changed")
    exists = action.key in transaction_properties
    match action:
        case SetProperty():
            if exists and action.mode is SetMode.FAIL:
                raise ConcurrentModification(
                    f"Transaction {transaction.key} already has a property {action.key!r:.60}"
                )
            if not exists or action.mode is SetMode.OVERWRITE:
                transaction_properties[action.key] = action.value
        case UnsetProperty():
            if not exists and action.mode is UnsetMode.FAIL:
                raise ConcurrentModification(
                    f"Transaction {transaction.key} has no property {action.key!r:.60}"
                )
            transaction_properties.pop(action.key, None)
        case _:
            assert_never(action)


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


class LanceCommitHistory:
    """Committed transactions, as Lance stores them with the table."""

    def __init__(self, data: LanceTableData) -> None:
        self._data = data

    def find(self, table: Table, version: int) -> Transaction:
        transaction = self._read(table, self._data.open(table, version), version)
        return _transaction(table, version, transaction)

    def find_by_uuid(self, table: Table, uuid: str, versions: Sequence[int]) -> Transaction | None:
        """The transaction with this UUID, if it committed one of these versions."""
        dataset = self._data.open(table, None)
        for version in versions:
            transaction = self._read(table, dataset, version)
            if transaction is not None and transaction.uuid == uuid:
                return _transaction(table, version, transaction)
        return None

    def _read(self, table: Table, dataset: lance.LanceDataset, version: int) -> LanceTransaction | None:
        """None if the transaction was cleaned up, or its writer stored none."""
        with translated(table.ident):
            try:
                return dataset.read_transaction(version)
            except TypeError as error:
                if is_compaction_of_indexes(error):
                    return None
                raise
            except (OSError, ValueError) as error:
                if "not found" in str(error).lower() or "does not exist" in str(error).lower():
                    return None
                raise


def _transaction(table: Table, version: int, lance_transaction: LanceTransaction | None) -> Transaction:
    prefix = f"{table.table_id}/{table.branch}"
    if lance_transaction is None:
        properties = {"version": str(version), "branch": table.branch}
        return Transaction(f"{prefix}/{version}", table.ident, TransactionStatus.SUCCEEDED, properties)
    properties = {
        **(lance_transaction.transaction_properties or {}),
        "version": str(version),
        "branch": table.branch,
        "uuid": lance_transaction.uuid,
        "operation": type(lance_transaction.operation).__name__,
        "read_version": str(lance_transaction.read_version),
    }
    return Transaction(
        f"{prefix}/{lance_transaction.uuid}", table.ident, TransactionStatus.SUCCEEDED, properties
    )


STATUSES: Final[Mapping[JobState, TransactionStatus]] = {
    JobState.QUEUED: TransactionStatus.QUEUED,
    JobState.PAUSED: TransactionStatus.QUEUED,
    JobState.RUNNING: TransactionStatus.RUNNING,
    JobState.DONE: TransactionStatus.SUCCEEDED,
    JobState.FAILED: TransactionStatus.FAILED,
    JobState.CANCELLED: TransactionStatus.CANCELED,
}


class JobTransactions:
    """Jobs as transactions, which can be cancelled while they run."""

    def __init__(self, store: JobStore, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    def find(self, caller: Caller, transaction_id: str) -> Transaction | None:
        """Raises PermissionDenied when the caller may not see it."""
        try:
            with self._store.transaction() as tx:
                job = tx.jobs.get(transaction_id)
        except JobNotFound:
            return None
        self._authorizer.require(caller, Permission.READ, job.table)
        return Transaction(job.job_id, job.table, STATUSES[job.state], _properties(job))

    def cancel(self, caller: Caller, tx: JobTransaction, transaction_id: str) -> None:
        """Raises InvalidJobTransition if it has ended."""
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
