"""Storage options and credentials that clients need to open the files of Iceberg tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.operations.storage_access import storage_access_of
from tidemill.catalog.ports import Authorizer, TableFiles
from tidemill.iceberg.model.entries import EntryKind
from tidemill.iceberg.operations.locations import EntryLocations
from tidemill.iceberg.ports import IcebergStore

NO_ENTRY_ID: Final = UUID(int=0)


class IcebergAccess:
    def __init__(
        self, store: IcebergStore, authorizer: Authorizer, files: TableFiles, locations: EntryLocations
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self.warehouse = locations.warehouse

    def storage_options(self, caller: Caller, ident: TableIdent, location: str) -> Mapping[str, str]:
        """Storage options, maybe with credentials: never log them; the caller must have loaded the table."""
        return self._files.vend(location, storage_access_of(self._authorizer, caller, ident))

    def is_current_location(self, ident: TableIdent, location: str) -> bool:
        """Whether the location still belongs to the table with this name, or to nothing at all.

        The table may have been renamed or dropped since, and its location reused. A replayed response must
        not hand out credentials for a location that belongs to another table or view.
        """
        with self._store.reading() as tx:
            found = tx.iceberg.find(ident, EntryKind.TABLE)
            own_id = NO_ENTRY_ID if found is None else found.entry_id
            return not tx.iceberg.is_in_another(location, own_id)
