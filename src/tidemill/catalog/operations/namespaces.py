"""Operations on namespaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias
from uuid import uuid4

from tidemill.catalog.errors import NamespaceAlreadyExists, NamespaceNotFound
from tidemill.catalog.locations import TableLocations
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.catalog.model.namespaces import CreateMode, DropBehavior, DropMode, Namespace, PropertyChanges
from tidemill.catalog.model.tables import Page, Table
from tidemill.catalog.ports import Authorizer, CatalogStore, CatalogTransaction, TableFiles
from tidemill.catalog.retries import retry_deadlocks
from tidemill.errors import InvalidInput, Unprocessable

NamespaceEffect: TypeAlias = Callable[[CatalogTransaction], None]
"""Work that runs at the start of the transaction of a change."""


def _no_effect(tx: CatalogTransaction, changes: PropertyChanges | None = None) -> None:
    return None


class NamespaceOperations:
    def __init__(self, store: CatalogStore, authorizer: Authorizer, files: TableFiles) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self._locations = TableLocations(files)

    def create(
        self,
        caller: Caller,
        path: NamespacePath,
        mode: CreateMode,
        properties: Mapping[str, str],
        on_commit: NamespaceEffect = _no_effect,
    ) -> Namespace:
        self._authorizer.require(caller, Permission.MANAGE, path)
        _refuse_root(path, "created")
        namespace, dropped = retry_deadlocks(lambda: self._create(path, mode, properties, on_commit))
        self._remove_files(dropped)
        return namespace

    def list_children(self, caller: Caller, path: NamespacePath, page: Page) -> Sequence[str]:
        self._authorizer.require(caller, Permission.READ, path)
        with self._store.transaction() as tx:
            _check_exists(tx, path)
            return [child.path.name for child in tx.namespaces.list_children(path, page)]

    def describe(self, caller: Caller, path: NamespacePath) -> Namespace:
        self._authorizer.require(caller, Permission.READ, path)
        if path.is_root:
            return Namespace(uuid4(), path)
        with self._store.transaction() as tx:
            return tx.namespaces.get(path)

    def update_properties(
        self,
        caller: Caller,
        path: NamespacePath,
        removals: Sequence[str],
        updates: Mapping[str, str],
        on_commit: Callable[[CatalogTransaction, PropertyChanges], None] = _no_effect,
    ) -> PropertyChanges:
        """Raises Unprocessable if a property is both set and removed."""
        self._authorizer.require(caller, Permission.MANAGE, path)
        conflicting = sorted(set(removals) & updates.keys())
        if conflicting:
            raise Unprocessable(
                f"Invalid namespace update: cannot simultaneously set and remove keys: {conflicting}"
            )
        with self._store.transaction() as tx:
            before = tx.namespaces.lock(path).properties
            present = [key for key in dict.fromkeys(removals) if key in before]
            changes = PropertyChanges(
                updated=tuple(updates),
                removed=tuple(present),
                missing=tuple(key for key in dict.fromkeys(removals) if key not in before),
            )
            on_commit(tx, changes)
            remaining = {key: value for key, value in before.items() if key not in present}
            tx.namespaces.set_properties(path, {**remaining, **updates})
        return changes

    def drop(
        self,
        caller: Caller,
        path: NamespacePath,
        mode: DropMode,
        behavior: DropBehavior,
        on_commit: NamespaceEffect = _no_effect,
    ) -> None:
        self._authorizer.require(caller, Permission.MANAGE, path)
        _refuse_root(path, "dropped")
        self._remove_files(retry_deadlocks(lambda: self._drop(path, mode, behavior, on_commit)))

    def _create(
        self, path: NamespacePath, mode: CreateMode, properties: Mapping[str, str], on_commit: NamespaceEffect
    ) -> tuple[Namespace, Sequence[Table]]:
        """Returns the namespace, and the tables that were dropped with the one it replaces."""
        dropped: Sequence[Table] = ()
        with self._store.transaction() as tx:
            on_commit(tx)
            existing = tx.namespaces.find(path)
            if existing is not None and mode is CreateMode.CREATE:
                raise NamespaceAlreadyExists(path)
            if existing is not None and mode is CreateMode.EXIST_OK:
                return existing, dropped
            if existing is not None:
                # The new namespace is added to the parent.
                tx.namespaces.lock_all([path.parent])
                dropped = _remove_with_content(tx, path)
            namespace = Namespace(uuid4(), path, dict(properties))
            try:
                tx.namespaces.add(namespace)
            except NamespaceAlreadyExists:
                # Another caller has created it since the check.
                if mode is CreateMode.EXIST_OK:
                    return tx.namespaces.get(path), dropped
                raise
        return namespace, dropped

    def _drop(
        self, path: NamespacePath, mode: DropMode, behavior: DropBehavior, on_commit: NamespaceEffect
    ) -> Sequence[Table]:
        """Returns the tables that were dropped with it."""
        with self._store.transaction() as tx:
            on_commit(tx)
            if tx.namespaces.find(path) is None:
                if mode is DropMode.SKIP:
                    return ()
                raise NamespaceNotFound(path)
            if behavior is DropBehavior.CASCADE:
                return _remove_with_content(tx, path)
            tx.namespaces.remove(path)
            return ()

    def _remove_files(self, tables: Sequence[Table]) -> None:
        """Removes table files in the warehouse. Data registered from elsewhere stays."""
        for table in tables:
            if self._locations.is_managed(table.location):
                self._files.remove_table(table.location)


def _refuse_root(path: NamespacePath, what: str) -> None:
    if path.is_root:
        raise InvalidInput("id", f"is the root namespace, which cannot be {what}; name a namespace below it")


def _check_exists(tx: CatalogTransaction, path: NamespacePath) -> None:
    if not path.is_root:
        tx.namespaces.get(path)


def _remove_with_content(tx: CatalogTransaction, path: NamespacePath) -> Sequence[Table]:
    tx.namespaces.lock_tree(path)
    tables = tx.tables.list_under(path)
    tx.tables.lock_all((), removed={table.ident for table in tables})
    for table in tables:
        tx.tables.remove(table.table_id)
    tx.tables.remove_iceberg_names(path)
    for descendant in _deepest_first(tx, path):
        tx.secrets.remove_in(descendant)
        tx.namespaces.remove(descendant)
    return tables


def _deepest_first(tx: CatalogTransaction, path: NamespacePath) -> Iterator[NamespacePath]:
    for child in tx.namespaces.list_children(path, Page()):
        yield from _deepest_first(tx, child.path)
    yield path
