"""Operations on transactions: describe them, set properties, cancel those that are running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never
from uuid import UUID

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
from tidemill.catalog.model.transactions import (
    SetMode,
    SetProperty,
    SetStatus,
    Transaction,
    TransactionAction,
    TransactionStatus,
    UnsetMode,
    UnsetProperty,
)
from tidemill.catalog.ports import Authorizer
from tidemill.errors import InvalidInput
from tidemill.jobs.ports import JobStore
from tidemill.jobs.service.transactions import JobTransactions
from tidemill.lance.datasets import LanceTableData
from tidemill.lance.transaction_log import LanceCommitHistory
from tidemill.lance.versions.commit import VersionOperations

# The search for a commit by UUID goes back from the latest version and reads one small file for each.
VERSIONS_SEARCHED = 1000


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
