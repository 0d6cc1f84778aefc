"""What clients need to reach the files of Iceberg tables: options, credentials, signed requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import orjson

from tidemill.catalog.locations import storage_access_of
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.ports import Authorizer, RequestSigner, SignedRequest, SignRequest, TableFiles
from tidemill.errors import InvalidInput, Unsupported
from tidemill.iceberg.model.entries import EntryKind
from tidemill.iceberg.operations.names import EntryLocations
from tidemill.iceberg.operations.tables import IcebergTableOperations
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


TABLE_UUID: Final = "table-uuid"
READ_METHODS: Final = frozenset({"GET", "HEAD"})


class RequestSigning:
    def __init__(
        self, authorizer: Authorizer, tables: IcebergTableOperations, signer: RequestSigner | None
    ) -> None:
        self._authorizer = authorizer
        self._tables = tables
        self._signer = signer

    @property
    def is_enabled(self) -> bool:
        return self._signer is not None

    def sign(self, caller: Caller, ident: TableIdent, request: SignRequest) -> SignedRequest:
        """Signs reads for callers that may read the table, and any request for callers that may write it."""
        if self._signer is None:
            raise Unsupported(
                "Remote signing is not available: the warehouse is local, or signing is disabled"
            )
        if request.method not in READ_METHODS:
            self._authorizer.require(caller, Permission.WRITE, ident)
        metadata = orjson.loads(self._tables.load(caller, ident).metadata)
        expected = request.properties.get(TABLE_UUID)
        if expected is not None and expected != metadata[TABLE_UUID]:
            raise InvalidInput(
                f"properties.{TABLE_UUID}",
                f"{expected!r:.60} is not that of {ident}, which is another table by now; load it again",
            )
        return self._signer.sign(metadata["location"], request)
