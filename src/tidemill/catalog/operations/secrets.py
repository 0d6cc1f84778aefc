"""Operations on secrets. Callers can set, replace, list and drop them, but never read their values."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.functions import Secret, checked_value
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.ports import Authorizer, CatalogStore, Cipher


class SecretOperations:
    def __init__(self, store: CatalogStore, authorizer: Authorizer, cipher: Cipher) -> None:
        self._store = store
        self._authorizer = authorizer
        self._cipher = cipher

    def create(self, caller: Caller, ident: TableIdent, value: str) -> Secret:
        """Raises SecretAlreadyExists; use `alter` to replace a value."""
        self._authorizer.require(caller, Permission.FUNCTION, ident)
        sealed = self._cipher.seal(checked_value(value))
        with self._store.transaction() as tx:
            tx.secrets.add(ident, sealed)
            return tx.secrets.get(ident)

    def alter(self, caller: Caller, ident: TableIdent, value: str) -> Secret:
        """Replaces the value of a secret; raises SecretNotFound."""
        self._authorizer.require(caller, Permission.FUNCTION, ident)
        sealed = self._cipher.seal(checked_value(value))
        with self._store.transaction() as tx:
            tx.secrets.replace(ident, sealed)
            return tx.secrets.get(ident)

    def describe(self, caller: Caller, ident: TableIdent) -> Secret:
        self._authorizer.require(caller, Permission.READ, ident)
        with self._store.transaction() as tx:
            return tx.secrets.get(ident)

    def list_in(self, caller: Caller, namespace: NamespacePath) -> Sequence[Secret]:
        """Secrets directly in the namespace, sorted by name."""
        self._authorizer.require(caller, Permission.READ, namespace)
        with self._store.transaction() as tx:
            return tx.secrets.list_in(namespace)

    def drop(self, caller: Caller, ident: TableIdent) -> None:
        self._authorizer.require(caller, Permission.FUNCTION, ident)
        with self._store.transaction() as tx:
            tx.secrets.remove(ident)
