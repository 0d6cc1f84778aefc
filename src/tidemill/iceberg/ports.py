"""What Iceberg tables and views need from the catalog database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias, TypeVar
from uuid import UUID

from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import Page
from tidemill.catalog.ports import CatalogTransaction
from tidemill.iceberg.model.entries import Entry, EntryKind, EntryState, Holder

Result_contra = TypeVar("Result_contra", contravariant=True)


class IcebergRepository(Protocol):
    """Tables and views of Iceberg; their names are rows beside those of Lance tables."""

    def add(self, entry: Entry) -> None:
        """Raises NameTaken; NamespaceNotFound when its namespace is missing."""

    def find(self, ident: TableIdent, kind: EntryKind) -> Entry | None: ...

    def lock(self, ident: TableIdent, kind: EntryKind) -> Entry | None:
        """Finds it, and holds back whoever wants to change it until the transaction ends."""

    def lock_state(self, entry_id: UUID) -> EntryState | None:
        """The same for what has this id, whatever its name is by now."""

    def lock_all(self, entry_ids: Collection[UUID]) -> None:
        """For a transaction over several: locks them in the order that all transactions keep."""

    def exists(self, ident: TableIdent, kind: EntryKind) -> bool: ...

    def find_holder(self, ident: TableIdent) -> Holder | None:
        """What has the name, whichever format it is of."""

    def list_names(self, path: NamespacePath, kind: EntryKind, page: Page) -> Sequence[str]:
        """Directly in the namespace, sorted; raises NamespaceNotFound."""

    def swap(self, before: Entry, after: Entry) -> bool:
        """Puts the state after in the place of the state before; False, and nothing done, if that is gone."""

    def rename(self, entry: Entry, ident: TableIdent) -> bool:
        """Moves the name alone; raises RenameTargetTaken, NamespaceNotFound; False if it is gone."""

    def remove(self, entry_id: UUID) -> None: ...

    def is_place_taken(self, entry: Entry) -> bool:
        """Whether its place is, contains or lies in that of something else; holds for the transaction."""

    def is_overlapping(self, entry: Entry) -> bool:
        """The same as of now; nobody is held back."""

    def is_in_another(self, place: str, entry_id: UUID) -> bool:
        """Whether the place is, or lies in, that of something else as of now, of Iceberg or Lance."""


class PurgeQueue(Protocol):
    """Tables whose files are to be removed; a row stays until they are."""

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
        """For what only reads: every statement sees all that was committed before it; none can write."""


OnCommit: TypeAlias = Callable[[CatalogTransaction, Result_contra], None]
"""Work that has to happen in the very transaction of a mutation, before anything else in it; gets its result.

It raises ReceiptExists when the request was carried out already; the mutation is then undone.
"""
