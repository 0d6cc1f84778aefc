"""Reads the transactions that created versions from Lance's log."""

from __future__ import annotations

from collections.abc import Sequence

import lance
from lance import Transaction as LanceTransaction

from tidemill.catalog.model.tables import Table
from tidemill.catalog.model.transactions import Transaction, TransactionStatus
from tidemill.lance.changes import is_compaction_of_indexes
from tidemill.lance.datasets import LanceTableData, translated


class LanceCommitHistory:
    def __init__(self, data: LanceTableData) -> None:
        self._data = data

    def find(self, table: Table, version: int) -> Transaction:
        transaction = self._read(table, self._data.open(table, version), version)
        return _transaction(table, version, transaction)

    def find_by_uuid(self, table: Table, uuid: str, versions: Sequence[int]) -> Transaction | None:
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
