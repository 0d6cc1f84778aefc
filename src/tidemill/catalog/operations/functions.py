"""Operations on functions: named objects of a namespace.

`function` on the namespace registers and drops; `read` on it, or on the function, shows a function and uses
it elsewhere. What a caller may not read does not exist for it, whatever names and digests it knows.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.catalog.auditing import note_object
from tidemill.catalog.errors import FunctionNotFound
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Function, RegisteredFunction, function_ident
from tidemill.catalog.model.identifiers import ROOT_NAMESPACE, NamespacePath
from tidemill.catalog.operations.visibility import can, require_visible
from tidemill.catalog.ports import Authorizer, CatalogStore, CatalogTransaction


class FunctionOperations:
    def __init__(self, store: CatalogStore, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    def register(
        self, caller: Caller, function: Function, namespace: NamespacePath = ROOT_NAMESPACE
    ) -> Function:
        self._authorizer.require(caller, Permission.FUNCTION, namespace)
        note_object(function_ident(namespace, function.name))
        with self._store.transaction() as tx:
            return tx.functions.get(tx.functions.add(function, caller.principal, namespace))

    def list_registered(
        self, caller: Caller, namespace: NamespacePath | None = None
    ) -> Sequence[RegisteredFunction]:
        """Those of a namespace, or all that the caller may read, without the SQL expressions of columns."""
        require_visible(self._authorizer, caller, namespace or ROOT_NAMESPACE)
        with self._store.transaction() as tx:
            registered = tx.functions.list_registered(namespace)
        return self._readable(caller, [item for item in registered if not item.function.is_expression])

    def get(
        self, caller: Caller, namespace: NamespacePath, name: str, version: int | None = None
    ) -> RegisteredFunction:
        """One version of a function, by default the latest; raises FunctionNotFound."""
        self._authorizer.require(caller, Permission.READ, function_ident(namespace, name))
        with self._store.transaction() as tx:
            return _get(tx, namespace, name, version)

    def get_by_digest(self, caller: Caller, digest: str) -> RegisteredFunction:
        """The version with this digest; raises FunctionNotFound, also if it is one of another team."""
        with self._store.transaction() as tx:
            matches = self._readable(caller, tx.functions.find_all(digest))
        if not matches:
            raise FunctionNotFound(digest)
        return matches[0]

    def get_registration(self, caller: Caller, digest: str) -> RegisteredFunction:
        """Raises PermissionDenied, whether the function exists or not, if the caller may not read it."""
        try:
            return self.get_by_digest(caller, digest)
        except FunctionNotFound:
            self._authorizer.require(caller, Permission.READ, ROOT_NAMESPACE)
            raise

    def drop(
        self, caller: Caller, namespace: NamespacePath, name: str, version: int | None = None
    ) -> RegisteredFunction:
        """Removes one version, by default the latest, from listings. Columns that use it keep working."""
        ident = function_ident(namespace, name)
        self._authorizer.require(caller, Permission.FUNCTION, namespace)
        note_object(ident)
        with self._store.transaction() as tx:
            registered = _get(tx, namespace, name, version)
            tx.functions.drop(registered.key)
            others = tx.functions.list_registered(namespace)
            if not any(item.ident == ident for item in others):
                # A function that gets this name later is another one.
                tx.grants.remove_on(ident)
        return registered

    def _readable(self, caller: Caller, registered: Sequence[RegisteredFunction]) -> list[RegisteredFunction]:
        idents = {item.ident for item in registered if item.ident is not None}
        readable = {ident for ident in idents if can(self._authorizer, caller, Permission.READ, ident)}
        return [item for item in registered if item.ident in readable]


def _get(
    tx: CatalogTransaction, namespace: NamespacePath, name: str, version: int | None
) -> RegisteredFunction:
    matches = [
        item for item in tx.functions.list_registered(namespace, name) if version in {None, item.version}
    ]
    if not matches:
        raise FunctionNotFound(name, "" if version is None else f" version {version}")
    return matches[-1]
