"""Signs storage requests for clients that have no credentials of their own (remote signing)."""

from __future__ import annotations

from typing import Final

import orjson

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.ports import Authorizer
from tidemill.catalog.signing_ports import RequestSigner, SignedRequest, SignRequest
from tidemill.errors import Unsupported
from tidemill.iceberg.operations.tables import IcebergTableOperations

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
        entry = self._tables.load(caller, ident)
        return self._signer.sign(orjson.loads(entry.metadata)["location"], request)
