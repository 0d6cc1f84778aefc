"""Signing requests of clients that have no credentials for a table's files."""

from __future__ import annotations

from typing import Final

import orjson

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.ports import Authorizer
from tidemill.catalog.signing_ports import RequestSigner, SignedRequest, SignRequest
from tidemill.errors import Unsupported
from tidemill.iceberg.operations.tables import IcebergTableOperations

READS: Final = frozenset({"GET", "HEAD"})


class RequestSigning:
    def __init__(
        self, authorizer: Authorizer, tables: IcebergTableOperations, signer: RequestSigner | None
    ) -> None:
        self._authorizer = authorizer
        self._tables = tables
        self._signer = signer

    @property
    def is_on(self) -> bool:
        return self._signer is not None

    def sign(self, caller: Caller, ident: TableIdent, request: SignRequest) -> SignedRequest:
        """Whoever may read the table has reads signed, and whoever may write it everything."""
        if self._signer is None:
            raise Unsupported("Requests are not signed here: the warehouse is local, or signing is off")
        if request.method not in READS:
            self._authorizer.require(caller, Permission.WRITE, ident)
        entry = self._tables.load(caller, ident)
        return self._signer.sign(orjson.loads(entry.metadata)["location"], request)
