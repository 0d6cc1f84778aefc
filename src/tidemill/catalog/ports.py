"""What the catalog needs from the outside: a database, storage, table data, and a judge of permissions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

import pyarrow as pa

from tidemill.catalog.model.callers import Caller, Permission, StorageAccess
from tidemill.catalog.model.dml import EditResult, RowMerge, RowUpdate
from tidemill.catalog.model.functions import Function, RegisteredFunction
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.namespaces import Namespace
from tidemill.catalog.model.queries import QueryResult, TableQuery
from tidemill.catalog.model.receipts import Receipt
from tidemill.catalog.model.refs import Branch, Tag
from tidemill.catalog.model.secrets import Secret
from tidemill.catalog.model.stored_queries import StoredQuery
from tidemill.catalog.model.tables import (
    Declared,
    InsertMode,
    Page,
    Table,
    TableStatistics,
    TableSummary,
    TableVersion,
    WriteResult,
)


class NamespaceRepository(Protocol):
    """The root is not a row: it always exists and is never returned."""

    def add(self, namespace: Namespace) -> None:
        """Raises NamespaceAlreadyExists; NamespaceNotFound when the parent is missing."""

    def get(self, path: NamespacePath) -> Namespace:
        """Raises NamespaceNotFound."""

    def find(self, path: NamespacePath) -> Namespace | None: ...

    def list_children(self, path: NamespacePath, page: Page) -> Sequence[Namespace]:
        """Direct children, sorted by name."""

    def set_properties(self, path: NamespacePath, properties: Mapping[str, str]) -> None: ...

    def lock(self, path: NamespacePath) -> Namespace:
        """Holds back others that lock it until the transaction ends; raises NamespaceNotFound."""

    def lock_all(self, paths: Iterable[NamespacePath]) -> None:
        """For a transaction that adds several names to them; comes before locks on tables.

        Raises NamespaceNotFound.
        """

    def lock_tree(self, path: NamespacePath) -> None:
        """For a transaction that removes it with its content; comes before locks on tables.

        Nobody else adds to it, or to what is below it, until the transaction ends. Raises NamespaceNotFound.
        """

    def remove(self, path: NamespacePath) -> None:
        """Removes an empty namespace; raises NamespaceNotEmpty if it holds anything."""


class TableRepository(Protocol):
    """Lance tables and views. Names are shared with Iceberg's, which are not found here, only in the way."""

    def add(self, table: Table) -> None:
        """Raises TableAlreadyExists; NamespaceNotFound when its namespace is missing."""

    def get(self, ident: TableIdent) -> Table:
        """Raises NamespaceNotFound when the namespace is missing, else TableNotFound."""

    def find(self, ident: TableIdent) -> Table | None: ...

    def find_by_id(self, table_id: UUID) -> Table | None: ...

    def list_in(
        self, path: NamespacePath, page: Page, declared: Declared = Declared.INCLUDE
    ) -> Sequence[Table]:
        """Tables directly in the namespace, sorted by name."""

    def list_names(self, path: NamespacePath, page: Page, declared: Declared) -> Sequence[str]:
        """Only the names of what `list_in` gives; raises NamespaceNotFound."""

    def list_under(self, path: NamespacePath, declared: Declared = Declared.INCLUDE) -> Sequence[Table]:
        """Tables in the namespace and in all below it, sorted by their levels."""

    def rename(self, table_id: UUID, ident: TableIdent) -> None:
        """Moves the name and nothing else; raises TableAlreadyExists, NamespaceNotFound, TableNotFound."""

    def set_properties(self, table_id: UUID, properties: Mapping[str, str]) -> None: ...

    def has_overlapping(self, location: str) -> bool:
        """Whether the location of a table or view of any format is this one, contains it or lies in it.

        Until the transaction ends, nobody else is told: two cannot take the same place.
        """

    def lock(self, table: Table) -> None:
        """Holds back others that lock it until the transaction ends; raises TableNotFound when it is gone."""

    def lock_all(self, changed: Collection[TableIdent], removed: Collection[TableIdent] = ()) -> None:
        """For a transaction over several tables: locks them in the order that all transactions keep.

        Skips those that are missing.
        """

    def remove(self, table_id: UUID) -> None:
        """Removes the row with its versions, columns, view and coverage; cancels its active jobs."""

    def remove_iceberg_names(self, path: NamespacePath) -> None:
        """Takes the names of Iceberg tables and views in the namespace and below away; their files stay."""


class VersionRepository(Protocol):
    """The arbiter of commits: one row per (table, branch, version)."""

    def add(self, version: TableVersion) -> None:
        """Raises TableVersionAlreadyExists."""

    def find(self, table_id: UUID, branch: str, version: int) -> TableVersion | None: ...

    def find_latest(self, table_id: UUID, branch: str) -> TableVersion | None: ...

    def lock(self, version: TableVersion) -> TableVersion | None:
        """The row of that number as it is now; holds back others that lock it until the transaction ends."""

    def settle(self, version: TableVersion) -> bool:
        """Marks what was deferred as recorded; False when the row is another or it is recorded already."""

    def list_all(self, table_id: UUID, branch: str) -> Sequence[TableVersion]:
        """All versions of the branch, ascending."""

    def list_page(
        self, table_id: UUID, branch: str, after: int | None, limit: int | None, *, is_descending: bool
    ) -> Sequence[TableVersion]:
        """At most `limit` versions that follow the version `after` in that order."""

    def mark_deleted(self, version: TableVersion) -> None:
        """From now on it is found by `list_deleted` alone, until its row is removed."""

    def list_deleted(self, table_id: UUID, branch: str) -> Sequence[TableVersion]:
        """Versions that were deleted, and whose manifests may still be there."""

    def remove(self, table_id: UUID, branch: str, version: int) -> None: ...

    def remove_branch(self, table_id: UUID, branch: str) -> None:
        """Removes the versions of the branch, and what is known of the values its columns have there."""

    def forget_results(self, table_id: UUID, branch: str, version: int) -> None:
        """Forgets what is known to be computed from this version of the branch or a later one, or held by it.

        Views are made from main.
        """


class FunctionRepository(Protocol):
    def add(self, function: Function, registered_by: str) -> None:
        """Registering a digest that is known already changes nothing."""

    def get(self, digest: str) -> Function:
        """Raises FunctionNotFound."""

    def list_registered(self, name: str | None = None) -> Sequence[RegisteredFunction]:
        """Sorted by name and version, without those that were dropped; payloads included."""

    def drop(self, digest: str) -> None:
        """Takes it off the lists; columns and views that use it still find it."""


class StoredQueryRepository(Protocol):
    """Queries under names; each goes with the table row that has its name."""

    def add(self, query: StoredQuery) -> None: ...

    def get(self, table: Table) -> StoredQuery:
        """Raises StoredQueryNotFound."""


class SecretRepository(Protocol):
    """Values come sealed and are not given out with the rest."""

    def add(self, ident: TableIdent, sealed: bytes) -> None:
        """Raises SecretAlreadyExists; NamespaceNotFound when its namespace is missing."""

    def replace(self, ident: TableIdent, sealed: bytes) -> None:
        """Raises SecretNotFound."""

    def get(self, ident: TableIdent) -> Secret:
        """Raises SecretNotFound."""

    def list_in(self, namespace: NamespacePath) -> Sequence[Secret]:
        """Those directly in the namespace, sorted by name; raises NamespaceNotFound."""

    def remove(self, ident: TableIdent) -> None:
        """Raises SecretNotFound."""

    def remove_in(self, namespace: NamespacePath) -> None:
        """Removes all that are directly in the namespace."""


class Cipher(Protocol):
    """Seals values, so that whoever reads the database alone learns nothing."""

    def seal(self, value: bytes) -> bytes: ...

    def open(self, sealed: bytes) -> bytes: ...


class TransactionProperties(Protocol):
    """Properties that callers put on transactions."""

    def get(self, key: str) -> Mapping[str, str]: ...

    def put(self, key: str, before: Mapping[str, str], properties: Mapping[str, str]) -> None:
        """Raises ConcurrentModification when they are no longer what they were before."""


class ReceiptRepository(Protocol):
    """One row per key; those whose time is over are as if they were not there."""

    def find(self, key: str) -> Receipt | None: ...

    def add(self, receipt: Receipt, lives: timedelta) -> None:
        """Waits for others that are adding this key; raises ReceiptExists."""

    def remove_expired(self) -> int:
        """How many there were."""


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
    @property
    def transaction_properties(self) -> TransactionProperties: ...
    @property
    def secrets(self) -> SecretRepository: ...
    @property
    def stored_queries(self) -> StoredQueryRepository: ...
    @property
    def receipts(self) -> ReceiptRepository: ...

    def now(self) -> datetime:
        """The database's clock: the only one that leases and versions are judged by."""

    def deferring(self) -> DeferredWrites: ...

    def apply(self, deferred: bytes) -> None:
        """Makes writes that were deferred; those that no longer apply are left out."""


class DeferredWrites(Protocol):
    """Writes that are to happen only if a version's manifest gets its place.

    `transaction` checks and reads like the one it was made from. It takes down what belongs to the version's
    content (coverage, ledger, errors, columns, properties) instead of writing it; all else it writes at once.
    """

    @property
    def transaction(self) -> CatalogTransaction: ...

    def packed(self) -> bytes | None:
        """What was taken down; None when that is nothing."""


class CatalogStore(Protocol):
    def transaction(self) -> AbstractContextManager[CatalogTransaction]: ...

    def reading(self) -> AbstractContextManager[CatalogTransaction]:
        """For what only reads: every statement sees all that was committed before it; none can write."""


class Authorizer(Protocol):
    def require(self, caller: Caller, permission: Permission, resource: NamespacePath | TableIdent) -> None:
        """Raises PermissionDenied."""


class TableFiles(Protocol):
    """Files of tables. Keys are object-store keys: no scheme, no bucket, no leading slash."""

    def location_of(self, table_id: UUID) -> str:
        """Where a new table's data goes, as a URI or absolute path a client can open."""

    def key_of(self, location: str) -> str:
        """The key of a location."""

    def key_of_file(self, location: str) -> str:
        """The key of a file, as a path or URI in which every character stands for itself."""

    def size_of(self, key: str) -> int | None:
        """Size of the object in bytes; None when there is none."""

    def read(self, key: str) -> bytes:
        """All bytes of the object; raises FileNotFoundError."""

    def write(self, key: str, data: bytes) -> None:
        """Makes the object hold these bytes, at once."""

    def list_names(self, key: str) -> Sequence[str]:
        """Names of the objects directly in this directory; none when it is missing."""

    def is_inside(self, location: str) -> bool:
        """Whether the location lies in the warehouse, or where else tables may be registered.

        Raises NotADirectoryError when it lies below a file.
        """

    def copy_if_absent(self, source_key: str, target_key: str, content: bytes | None = None) -> bool:
        """Makes target a copy of source, atomically; False when there is a target already.

        `content` is what source holds, for a store that would have to read it. Raises FileNotFoundError when
        source is missing. False may also mean that an earlier attempt of this call made the target.
        """

    def remove(self, key: str) -> None:
        """Removes one object; missing is fine."""

    def check_reachable(self) -> None:
        """Raises Unavailable when the warehouse is not there at all, as far as that is seen at once."""

    def make_directory(self, key: str) -> None:
        """Makes a directory with those above it, where there are directories; one that exists is fine."""

    def remove_table(self, location: str) -> None:
        """Removes all files of a table; refuses locations outside the warehouse."""

    def vend(self, location: str, access: StorageAccess = StorageAccess.WRITE) -> Mapping[str, str]:
        """Storage options with which a client can open the table; secret, never to be logged."""


ManifestCheck = Callable[[bytes, int, str, Callable[[str], bool]], None]
"""Judges the bytes of a staged manifest for a version and a branch; the last tells which base paths it may
name. Raises InvalidInput."""


class TableRefs(Protocol):
    """Tags and branches in storage. `table.branch` says which branch a version is of."""

    def list_tags(self, table: Table) -> Mapping[str, Tag]: ...

    def create_tag(self, table: Table, name: str, version: int) -> None: ...

    def update_tag(self, table: Table, name: str, version: int) -> None: ...

    def delete_tag(self, table: Table, name: str) -> None: ...

    def list_branches(self, table: Table) -> Mapping[str, Branch]: ...

    def create_branch(self, table: Table, name: str, version: int) -> None:
        """A commit: the branch's first version; not to be called in a transaction."""

    def delete_branch(self, table: Table, name: str) -> None:
        """Takes its files away as well; raises InvalidTableState when other branches began in it."""


TransactionEffect = Callable[[CatalogTransaction, int], None]
"""Work that becomes visible together with a version; gets the version's number.

It runs in the transaction that reserves the number, over `CatalogTransaction.deferring`.
"""


class TableData(Protocol):
    """Rows of Lance tables. Every write is a version committed through the catalog."""

    def create(self, table: Table, rows: pa.RecordBatchReader, on_commit: TransactionEffect) -> WriteResult:
        """Writes version 1; `on_commit` runs in the transaction of that version, before its row."""

    def insert(self, table: Table, rows: pa.RecordBatchReader, mode: InsertMode) -> WriteResult: ...

    def schema(self, table: Table, version: int | None) -> pa.Schema: ...

    def add_empty_columns(
        self, table: Table, fields: Sequence[pa.Field], on_commit: TransactionEffect
    ) -> int:
        """Adds all-null columns (metadata only) and returns the new version."""


class TableSnapshots(Protocol):
    """Single versions of Lance tables, seen as a whole."""

    def restore(self, table: Table, version: int) -> int:
        """Commits a new version that is like an old one, and returns its number."""

    def summary(self, table: Table, version: int) -> TableSummary: ...

    def statistics(self, table: Table, version: int) -> TableStatistics: ...

    def replace_schema_metadata(self, table: Table, metadata: Mapping[str, str]) -> Mapping[str, str]:
        """Commits a version whose schema has this metadata and no other; returns what it has."""


class TableQueries(Protocol):
    """Reads of rows at a version that is known to exist."""

    def query(self, table: Table, query: TableQuery, version: int) -> QueryResult: ...

    def query_in_memory(self, ident: TableIdent, rows: pa.Table, query: TableQuery) -> QueryResult:
        """Queries rows that are in no table as if they were the table's."""

    def count_rows(self, table: Table, predicate: str | None, version: int) -> int: ...

    def explain(self, table: Table, query: TableQuery, version: int, *, is_verbose: bool) -> str:
        """How the query would be run."""

    def analyze(self, table: Table, query: TableQuery, version: int) -> str:
        """How it was run, and what each step took."""


class TableEdits(Protocol):
    """Changes of rows of Lance tables: each is a version committed through the catalog."""

    def merge(self, table: Table, rows: pa.RecordBatchReader, merge: RowMerge) -> EditResult: ...

    def update(self, table: Table, update: RowUpdate, on_commit: TransactionEffect) -> EditResult:
        """`on_commit` runs in the transaction of the version, unless no row is changed."""

    def delete(self, table: Table, predicate: str) -> EditResult: ...
