"""Ports of the operations on columns, indexes and transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.indexes import IndexDefinition, IndexStatistics, TableIndex
from tidemill.catalog.model.schemas import ColumnAlteration, FieldMetadataUpdate, NewColumn, UpdatedFields
from tidemill.catalog.model.tables import Table
from tidemill.catalog.model.transactions import Transaction
from tidemill.catalog.ports import CatalogTransaction, TransactionEffect


class TableSchemas(Protocol):
    """Columns of Lance tables. Each call commits one version and resolves conflicts with other writers."""

    def add_columns(self, table: Table, columns: Sequence[NewColumn]) -> int: ...

    def add_empty_columns(self, table: Table, fields: pa.Schema) -> int: ...

    def alter_columns(
        self, table: Table, alterations: Sequence[ColumnAlteration], on_commit: TransactionEffect
    ) -> int: ...

    def drop_columns(self, table: Table, paths: Sequence[str], on_commit: TransactionEffect) -> int: ...

    def update_field_metadata(
        self, table: Table, updates: Sequence[FieldMetadataUpdate]
    ) -> UpdatedFields: ...


class ColumnBindings(Protocol):
    """Keeps the functions bound to columns in step when columns are dropped or renamed."""

    def forgetting(self, table: Table, names: Sequence[str]) -> TransactionEffect: ...

    def renaming(self, table: Table, new_names: Mapping[str, str]) -> TransactionEffect: ...


class TableIndexes(Protocol):
    """Indexes of Lance tables. Each branch has its own."""

    def check(self, table: Table, definition: IndexDefinition) -> IndexDefinition:
        """Returns the definition with the canonical path of its column.

        Raises TableColumnNotFound, and InvalidInput if the index cannot be built.
        """

    def build(
        self, table: Table, definition: IndexDefinition, on_commit: TransactionEffect, watch: BuildWatch
    ) -> int:
        """Builds and commits the index; raises TableIndexAlreadyExists unless it is a replacement."""

    def count_rows(self, table: Table) -> int: ...

    def list_all(self, table: Table, version: int) -> Sequence[TableIndex]:
        """Sorted by name."""

    def statistics(self, table: Table, version: int, name: str) -> IndexStatistics:
        """Raises TableIndexNotFound."""

    def drop(self, table: Table, name: str) -> int:
        """Raises TableIndexNotFound."""

    def prewarm(self, table: Table, name: str) -> None:
        """Raises TableIndexNotFound."""


class BuildWatch(Protocol):
    """Receives the progress of an index build."""

    def rows_done(self, rows: int) -> None: ...


class CommitHistory(Protocol):
    """Committed transactions, as Lance stores them with the table."""

    def find(self, table: Table, version: int) -> Transaction: ...

    def find_by_uuid(self, table: Table, uuid: str, versions: Sequence[int]) -> Transaction | None:
        """The transaction with this UUID, if it committed one of these versions."""


class OpenTransactions(Protocol):
    """Transactions that are still running and can be cancelled."""

    def find(self, caller: Caller, transaction_id: str) -> Transaction | None:
        """Raises PermissionDenied when the caller may not see it."""

    def cancel(self, caller: Caller, tx: CatalogTransaction, transaction_id: str) -> None:
        """Raises ConcurrentModification if it has ended."""
