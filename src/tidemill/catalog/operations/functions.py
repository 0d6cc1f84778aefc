"""Operations on functions."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.catalog.auditing import note_named
from tidemill.catalog.errors import FunctionNotFound
from tidemill.catalog.model.audit import ObjectKind
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Function, RegisteredFunction
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.catalog.ports import Authorizer, CatalogStore, CatalogTransaction


class FunctionOperations:
    def __init__(self, store: CatalogStore, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    def register(self, caller: Caller, function: Function) -> Function:
        self._authorizer.require(caller, Permission.FUNCTION, NamespacePath())
        note_named(ObjectKind.FUNCTION, function.name)
        with self._store.transaction() as tx:
            tx.functions.add(function, caller.principal)
            return tx.functions.get(function.digest)

    def list_all(self, caller: Caller) -> Sequence[Function]:
        return [registered.function for registered in self.list_registered(caller)]

    def list_registered(self, caller: Caller) -> Sequence[RegisteredFunction]:
        """All registered functions, without the SQL expressions of columns."""
        self._authorizer.require(caller, Permission.READ, NamespacePath())
        with self._store.transaction() as tx:
            registered = tx.functions.list_registered()
        return [item for item in registered if not item.function.is_expression]

    def get(self, caller: Caller, name: str, version: int | None = None) -> RegisteredFunction:
        """One version of a function, by default the latest; raises FunctionNotFound."""
        self._authorizer.require(caller, Permission.READ, NamespacePath())
        with self._store.transaction() as tx:
            return _get(tx, name, version)

    def get_by_digest(self, caller: Caller, digest: str) -> RegisteredFunction:
        """The version with this digest; raises FunctionNotFound."""
        self._authorizer.require(caller, Permission.READ, NamespacePath())
        with self._store.transaction() as tx:
            name = tx.functions.get(digest).name
            matches = [item for item in tx.functions.list_registered(name) if item.function.digest == digest]
        if not matches:
            raise FunctionNotFound(digest)
        return matches[0]

    def drop(self, caller: Caller, name: str, version: int | None = None) -> RegisteredFunction:
        """Removes one version, by default the latest, from listings. Columns that use it keep working."""
        self._authorizer.require(caller, Permission.FUNCTION, NamespacePath())
        note_named(ObjectKind.FUNCTION, name)
        with self._store.transaction() as tx:
            registered = _get(tx, name, version)
            tx.functions.drop(registered.function.digest)
        return registered


def _get(tx: CatalogTransaction, name: str, version: int | None) -> RegisteredFunction:
    matches = [item for item in tx.functions.list_registered(name) if version in {None, item.version}]
    if not matches:
        raise FunctionNotFound(name, "" if version is None else f" version {version}")
    return matches[-1]
