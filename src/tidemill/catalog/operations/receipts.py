"""Mutations and their receipts: a request with an idempotency key takes effect once.

A protocol hands an operation one value, the `Mutation`. It says who asks for the change, and it stores the
response in the transaction of the change, so a retry replays it. What an operation needs is a function that
returns `Need`s: the operation itself calls it, and so does the protocol before it replays a response.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Generic, TypeAlias, TypeVar

from tidemill.catalog.auditing import acting
from tidemill.catalog.errors import ReceiptExists
from tidemill.catalog.model.callers import Caller, Permission, Receipt
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.ports import Authorizer, CatalogStore, CatalogTransaction
from tidemill.errors import CommitStateUnknown, Unavailable, Unprocessable

CLEANUP_EVERY: Final = 200

Result_contra = TypeVar("Result_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Need:
    """A permission that a request needs, whether it is executed or replayed from its receipt."""

    permission: Permission
    resource: NamespacePath | TableIdent


Needs: TypeAlias = Sequence[Need]


def authorize(authorizer: Authorizer, caller: Caller, needs: Needs) -> None:
    """Raises PermissionDenied."""
    for need in needs:
        authorizer.require(caller, need.permission, need.resource)


@dataclass(frozen=True, slots=True)
class PendingReceipt(Generic[Result_contra]):
    """The receipt of a request that is being executed; `outcome_of` encodes the response to it."""

    receipts: ReceiptOperations
    request: Receipt
    outcome_of: Callable[[Result_contra], bytes]


@dataclass(frozen=True, slots=True)
class Mutation(Generic[Result_contra]):
    """The unit of work of one request that changes something.

    The operation calls `record` with its result in the transaction of the change, before it changes anything:
    the receipt and the change are committed together, and a second request with the same key waits.
    """

    caller: Caller
    receipt: PendingReceipt[Result_contra] | None = None

    def record(self, tx: CatalogTransaction, result: Result_contra) -> None:
        """Raises ReceiptExists if the same request was already executed; the transaction must roll back."""
        if self.receipt is not None:
            outcome = self.receipt.outcome_of(result)
            self.receipt.receipts.record(tx, replace(self.receipt.request, outcome=outcome))


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

    def find_authorized(self, caller: Caller, needs: Needs, request: Receipt) -> Receipt | None:
        """The receipt of the same request, for a caller that may still send it.

        Raises PermissionDenied, and Unprocessable if the key was used for another request.
        """
        authorize(self._authorizer, caller, needs)
        return self.find(request)

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
            with acting(None), self._store.transaction() as tx:
                self.record(tx, receipt)
        except ReceiptExists:
            return self.find(receipt) or receipt
        except CommitStateUnknown as error:
            raise Unavailable("The error response could not be recorded; send the request again") from error
        return receipt
