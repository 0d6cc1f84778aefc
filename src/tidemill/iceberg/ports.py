"""Ports to the catalog database for Iceberg tables and views."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol
from uuid import UUID

from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import Page
from tidemill.catalog.ports import CatalogTransaction
from tidemill.iceberg.model.entries import Entry, EntryKind, EntryState, Holder


class IcebergRepository(Protocol):
    """Iceberg tables and views; their names are rows in the same database table as Lance names."""

    def add(self, entry: Entry) -> None:
        """Raises NameTaken, and NamespaceNotFound if its namespace does not exist."""

    def find(self, ident: TableIdent, kind: EntryKind) -> Entry | None: ...

    def lock(self, ident: TableIdent, kind: EntryKind) -> Entry | None:
        """Finds the entry and locks it until the transaction ends; other writers wait."""

    def lock_state(self, entry_id: UUID) -> EntryState | None:
        """Like `lock`, but by id, whatever the entry's current name is."""

    def lock_all(self, entry_ids: Collection[UUID]) -> None:
        """Locks several entries in the order that all transactions use, which avoids deadlocks."""

    def exists(self, ident: TableIdent, kind: EntryKind) -> bool: ...

    def find_holder(self, ident: TableIdent) -> Holder | None:
        """What holds the name, of either format."""

    def list_names(self, path: NamespacePath, kind: EntryKind, page: Page) -> Sequence[str]:
        """Names directly in the namespace, sorted. Raises NamespaceNotFound."""

    def swap(self, before: Entry, after: Entry) -> bool:
        """Replaces the state `before` by `after`; False, without a change, if `before` is not current."""

    def rename(self, entry: Entry, ident: TableIdent) -> bool:
        """Changes only the name; False if the entry is gone. Raises RenameTargetTaken, NamespaceNotFound."""

    def remove(self, entry_id: UUID) -> None: ...

    def is_location_taken(self, entry: Entry) -> bool:
        """Whether its location overlaps that of another entry; the answer holds for the transaction.

        A view may be in the location of an Iceberg table of its namespace: it writes only metadata files.
        """

    def is_overlapping(self, entry: Entry) -> bool:
        """Like `is_location_taken`, but locks nothing, so the answer may be outdated at once."""

    def is_in_another(self, location: str, entry_id: UUID, dropped_from: str | None = None) -> bool:
        """Whether the location is, or lies inside, that of another entry of either format; locks nothing.

        A view in the location of a table, and that table, are not others to each other; `dropped_from` is
        where the table was if it has been dropped.
        """


class PurgeQueue(Protocol):
    """Dropped tables whose files must be removed; a row stays until they are gone."""

    def add(self, entry: Entry) -> None: ...

    def list_waiting(self, limit: int) -> Sequence[Entry]: ...

    def remove(self, entry_id: UUID) -> None: ...


class IcebergTransaction(CatalogTransaction, Protocol):
    @property
    def iceberg(self) -> IcebergRepository: ...
    @property
    def purges(self) -> PurgeQueue: ...


class IcebergStore(Protocol):
    def transaction(self) -> AbstractContextManager[IcebergTransaction]: ...

    def reading(self) -> AbstractContextManager[IcebergTransaction]:
        """A read-only transaction; each statement sees everything committed before it."""
