"""What the catalog needs from the outside: a database, storage, table data, and a judge of permissions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol
from uuid import UUID

import pyarrow as pa

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Function
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.namespaces import Namespace
from tidemill.catalog.model.tables import InsertMode, Page, Table, TableQuery, TableVersion, WriteResult


class NamespaceRepository(Protocol):
    """The root is not a row: it always exists and is never returned."""

    def add(self, namespace: Namespace) -> None:
        """Raises NamespaceAlreadyExists; NamespaceNotFound when the parent is missing."""

    def get(self, path: NamespacePath) -> Namespace:
        """Raises NamespaceNotFound."""

    def find(self, path: NamespacePath) -> Namespace | None: ...

    def list_children(self, path: NamespacePath, page: Page) -> Sequence[Namespace]:
        """Direct children, sorted by name."""

    def set_properties(self, namespace: Namespace) -> None: ...

    def remove(self, path: NamespacePath) -> None:
        """Removes an empty namespace; raises NamespaceNotEmpty if it holds anything."""


class TableRepository(Protocol):
    """Tables and views: they share one name space."""

    def add(self, table: Table) -> None:
        """Raises TableAlreadyExists; NamespaceNotFound when its namespace is missing."""

    def get(self, ident: TableIdent) -> Table:
        """Raises NamespaceNotFound when the namespace is missing, else TableNotFound."""

    def find(self, ident: TableIdent) -> Table | None: ...

    def find_by_id(self, table_id: UUID) -> Table | None: ...

    def list_in(self, path: NamespacePath, page: Page) -> Sequence[Table]:
        """Tables directly in the namespace, sorted by name."""

    def list_under(self, path: NamespacePath) -> Sequence[Table]:
        """Tables in the namespace and in all below it, sorted by their levels."""

    def remove(self, table_id: UUID) -> None:
        """Removes the row with its versions, columns, view and coverage; cancels its active jobs."""


class VersionRepository(Protocol):
    """The arbiter of commits: one row per (table, branch, version)."""

    def add(self, version: TableVersion) -> None:
        """Raises TableVersionAlreadyExists."""

    def find(self, table_id: UUID, branch: str, version: int) -> TableVersion | None: ...

    def find_latest(self, table_id: UUID, branch: str) -> TableVersion | None: ...

    def list_all(self, table_id: UUID, branch: str) -> Sequence[TableVersion]:
        """All versions of the branch, ascending."""

    def set_manifest_path(self, version: TableVersion, path: str) -> None: ...

    def remove(self, table_id: UUID, branch: str, version: int) -> None: ...


class FunctionRepository(Protocol):
    def add(self, function: Function, registered_by: str) -> None:
        """Registering a digest that is known already changes nothing."""

    def get(self, digest: str) -> Function:
        """Raises FunctionNotFound."""

    def list_all(self) -> Sequence[Function]:
        """Sorted by name, then by time of registration; payloads included."""


class CatalogTransaction(Protocol):
    """One atomic unit of catalog change; leaving the block commits, an exception rolls back."""

    @property
    def namespaces(self) -> NamespaceRepository: ...
    @property
    def tables(self) -> TableRepository: ...
    @property
    def versions(self) -> VersionRepository: ...
    @property
    def functions(self) -> FunctionRepository: ...

    def now(self) -> datetime:
        """The database's clock: the only one that leases and versions are judged by."""


class CatalogStore(Protocol):
    def transaction(self) -> AbstractContextManager[CatalogTransaction]: ...


class Authorizer(Protocol):
    def require(self, caller: Caller, permission: Permission, resource: NamespacePath | TableIdent) -> None:
        """Raises PermissionDenied."""


class TableFiles(Protocol):
    """Files of tables. Keys are object-store keys: no scheme, no bucket, no leading slash."""

    def location_of(self, table_id: UUID) -> str:
        """Where a new table's data goes, as a URI or absolute path a client can open."""

    def key_of(self, location: str) -> str:
        """The key of a location."""

    def size_of(self, key: str) -> int | None:
        """Size of the object in bytes; None when there is none."""

    def read_tail(self, key: str, length: int) -> bytes:
        """The last `length` bytes of the object."""

    def copy_if_absent(self, source_key: str, target_key: str) -> None:
        """Makes target a copy of source, atomically; leaves an existing target alone."""

    def is_same(self, first_key: str, second_key: str) -> bool:
        """Whether both objects exist and hold the same bytes."""

    def remove(self, key: str) -> None:
        """Removes one object; missing is fine."""

    def remove_table(self, location: str) -> None:
        """Removes all files of a table; refuses locations outside the warehouse."""


TransactionEffect = Callable[[CatalogTransaction, int], None]
"""Work that has to happen in the very transaction that inserts a version's row; gets the version's number."""


class TableData(Protocol):
    """Rows of Lance tables. Every write is a version committed through the catalog."""

    def create(self, table: Table, rows: pa.RecordBatchReader, also: TransactionEffect) -> WriteResult:
        """Writes version 1; `also` runs in the transaction of that version, before its row."""

    def insert(self, table: Table, rows: pa.RecordBatchReader, mode: InsertMode) -> WriteResult: ...

    def query(self, table: Table, query: TableQuery) -> pa.Table: ...

    def count_rows(self, table: Table, predicate: str | None, version: int | None) -> int: ...

    def schema(self, table: Table, version: int | None) -> pa.Schema: ...

    def add_empty_columns(self, table: Table, fields: Sequence[pa.Field], also: TransactionEffect) -> int:
        """Adds all-null columns (metadata only) and returns the new version."""

    def has_stable_row_ids(self, table: Table) -> bool: ...
