"""What clients need to open the files of Iceberg tables."""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.operations.reach import reach_of
from tidemill.catalog.ports import Authorizer, TableFiles
from tidemill.iceberg.operations.places import EntryPlaces


class IcebergAccess:
    def __init__(self, authorizer: Authorizer, files: TableFiles, places: EntryPlaces) -> None:
        self._authorizer = authorizer
        self._files = files
        self.warehouse = places.warehouse

    def options(self, caller: Caller, ident: TableIdent, place: str) -> Mapping[str, str]:
        """Storage options, maybe with credentials: for callers that were shown the table, and no log."""
        return self._files.vend(place, reach_of(self._authorizer, caller, ident))
