"""What callers can do with functions."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Function
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.catalog.ports import Authorizer, CatalogStore


class FunctionOperations:
    def __init__(self, store: CatalogStore, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    def register(self, caller: Caller, function: Function) -> Function:
        self._authorizer.require(caller, Permission.FUNCTION, NamespacePath())
        with self._store.transaction() as tx:
            tx.functions.add(function, caller.principal)
            return tx.functions.get(function.digest)

    def list_all(self, caller: Caller) -> Sequence[Function]:
        self._authorizer.require(caller, Permission.READ, NamespacePath())
        with self._store.transaction() as tx:
            return tx.functions.list_all()
