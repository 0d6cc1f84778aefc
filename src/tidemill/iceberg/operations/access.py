"""What clients need to open the files of Iceberg tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.operations.storage_access import storage_access_of
from tidemill.catalog.ports import Authorizer, TableFiles
from tidemill.iceberg.model.entries import EntryKind
from tidemill.iceberg.operations.locations import EntryPlaces
from tidemill.iceberg.ports import IcebergStore

NOBODY: Final = UUID(int=0)


class IcebergAccess:
    def __init__(
        self, store: IcebergStore, authorizer: Authorizer, files: TableFiles, places: EntryPlaces
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self.warehouse = places.warehouse

    def options(self, caller: Caller, ident: TableIdent, place: str) -> Mapping[str, str]:
        """Storage options, maybe with credentials: for callers that were shown the table, and no log."""
        return self._files.vend(place, storage_access_of(self._authorizer, caller, ident))

    def is_there(self, ident: TableIdent, place: str) -> bool:
        """Whether this place is still that of the table, or nobody's; it may have got another name since."""
        with self._store.reading() as tx:
            found = tx.iceberg.find(ident, EntryKind.TABLE)
            own_id = NOBODY if found is None else found.entry_id
            return not tx.iceberg.is_in_another(place, own_id)
