"""What columns, indexes and transactions need from the outside."""

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
    """Columns of Lance tables. Each call is one version; conflicts with other writers are resolved inside."""

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
    """Functions bound to columns, which have to follow when columns change."""

    def forgetting(self, table: Table, names: Sequence[str]) -> TransactionEffect: ...

    def renaming(self, table: Table, new_names: Mapping[str, str]) -> TransactionEffect: ...


class TableIndexes(Protocol):
    """Indexes of Lance tables; a branch has its own."""

    def check(self, table: Table, definition: IndexDefinition) -> IndexDefinition:
        """The definition with its column's canonical path; raises TableColumnNotFound, and InvalidInput
        for what could not be built."""

    def build(
        self, table: Table, definition: IndexDefinition, on_commit: TransactionEffect, watch: BuildWatch
    ) -> int:
        """Builds and commits; raises TableIndexAlreadyExists unless the definition is a replacement."""

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
    """What a build tells while it goes on."""

    def rows_done(self, rows: int) -> None: ...


class CommitHistory(Protocol):
    """Transactions that became versions, as Lance keeps them with the table."""

    def find(self, table: Table, version: int) -> Transaction: ...

    def find_by_uuid(self, table: Table, uuid: str, versions: Sequence[int]) -> Transaction | None:
        """The first of these versions that this transaction made."""


class OpenTransactions(Protocol):
    """Transactions that take time, and can be told to stop."""

    def find(self, caller: Caller, transaction_id: str) -> Transaction | None:
        """Raises PermissionDenied when the caller may not see it."""

    def cancel(self, caller: Caller, tx: CatalogTransaction, transaction_id: str) -> None:
        """Raises ConcurrentModification when it is over."""
