"""Receipts make requests with an idempotency key take effect once.

The response is stored in the same transaction as the change, so a retry replays it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tidemill.catalog.errors import ReceiptExists
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.receipts import Receipt
from tidemill.catalog.ports import Authorizer, CatalogStore, CatalogTransaction
from tidemill.errors import CommitStateUnknown, Unavailable, Unprocessable

CLEANUP_EVERY: Final = 200


@dataclass(frozen=True, slots=True)
class Need:
    """A permission that a request needs, whether it is executed or replayed from its receipt."""

    permission: Permission
    resource: NamespacePath | TableIdent


class ReceiptOperations:
    """Clients are told `lifetime`. Receipts are kept for `grace` longer, for clock skew and slow requests."""

    def __init__(
        self,
        store: CatalogStore,
        authorizer: Authorizer,
        lifetime: timedelta,
        grace: timedelta = timedelta(minutes=5),
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self.lifetime = lifetime
        self._retention = lifetime + grace
        self._count = itertools.count()

    def authorize(self, caller: Caller, needs: Sequence[Need]) -> None:
        for need in needs:
            self._authorizer.require(caller, need.permission, need.resource)

    def find(self, request: Receipt) -> Receipt | None:
        """The receipt of the same request; raises Unprocessable if its key was used for another one."""
        with self._store.reading() as tx:
            stored = tx.receipts.find(request.key)
        if stored is not None and not stored.is_for(request):
            raise Unprocessable(
                f"Idempotency-Key {request.key} was used for another request; use a new key for a new request"
            )
        return stored

    def record(self, tx: CatalogTransaction, receipt: Receipt) -> None:
        """Stores a receipt in the transaction of its change; raises ReceiptExists."""
        tx.receipts.add(receipt, self._retention)
        if next(self._count) % CLEANUP_EVERY == 0:
            tx.receipts.remove_expired()

    def record_in_own_transaction(self, receipt: Receipt) -> Receipt:
        """Stores a receipt for a request that changed nothing; returns the one that was stored first.

        Raises Unavailable if that fails: without a receipt a retry could get a different response.
        """
        try:
            with self._store.transaction() as tx:
                self.record(tx, receipt)
        except ReceiptExists:
            return self.find(receipt) or receipt
        except CommitStateUnknown as error:
            raise Unavailable("The error response could not be recorded; send the request again") from error
        return receipt
