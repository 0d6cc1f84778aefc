"""Operations on namespaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from uuid import uuid4

from tidemill.catalog.auditing import note_object
from tidemill.catalog.errors import NamespaceAlreadyExists, NamespaceNotFound
from tidemill.catalog.locations import TableLocations, namespace_location, warehouse_uri
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import (
    CreateMode,
    DependantPolicy,
    DropBehavior,
    DropMode,
    Namespace,
    NamespacePath,
    PropertyChanges,
)
from tidemill.catalog.model.tables import Page, Table
from tidemill.catalog.operations.dependants import lock_for_removal
from tidemill.catalog.operations.receipts import Mutation, Need, Needs, authorize
from tidemill.catalog.operations.visibility import can, list_visible, require_visible
from tidemill.catalog.ports import Authorizer, CatalogStore, CatalogTransaction, TableFiles
from tidemill.catalog.retries import retry_deadlocks
from tidemill.errors import InvalidInput, Unprocessable


def needs_to_change(path: NamespacePath) -> Needs:
    """To create or drop a namespace, or to change its properties."""
    return (Need(Permission.MANAGE, path),)


class NamespaceOperations:
    def __init__(self, store: CatalogStore, authorizer: Authorizer, files: TableFiles) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self._locations = TableLocations(files)
        self._warehouse = warehouse_uri(files)

    def create(
        self,
        mutation: Mutation[Namespace],
        path: NamespacePath,
        mode: CreateMode,
        properties: Mapping[str, str],
    ) -> Namespace:
        authorize(self._authorizer, mutation.caller, needs_to_change(path))
        _refuse_root(path, "created")
        note_object(path)
        new = self._located(Namespace(uuid4(), path, dict(properties)))
        namespace, dropped = retry_deadlocks(lambda: self._create(mutation, new, mode))
        self._remove_files(dropped)
        return namespace

    def list_children(self, caller: Caller, path: NamespacePath, page: Page) -> Sequence[str]:
        """Those that the caller sees."""
        require_visible(self._authorizer, caller, path)
        with self._store.transaction() as tx:
            _check_exists(tx, path)
            children = list_visible(
                page,
                fetch=partial(tx.namespaces.list_children, path),
                name_of=lambda child: child.path.name,
                is_visible=lambda child: self._authorizer.sees(caller, child.path),
            )
        return [child.path.name for child in children]

    def describe(self, caller: Caller, path: NamespacePath) -> Namespace:
        """Without properties for those who only pass through it to what they may read."""
        require_visible(self._authorizer, caller, path)
        if path.is_root:
            return Namespace(uuid4(), path)
        with self._store.transaction() as tx:
            namespace = tx.namespaces.get(path)
        if not can(self._authorizer, caller, Permission.READ, path):
            return replace(namespace, properties={})
        return self._located(namespace)

    def update_properties(
        self,
        mutation: Mutation[PropertyChanges],
        path: NamespacePath,
        removals: Sequence[str],
        updates: Mapping[str, str],
    ) -> PropertyChanges:
        """Raises Unprocessable if a property is both set and removed."""
        authorize(self._authorizer, mutation.caller, needs_to_change(path))
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
            mutation.record(tx, changes)
            remaining = {key: value for key, value in before.items() if key not in present}
            tx.namespaces.set_properties(path, {**remaining, **updates})
        return changes

    def drop(
        self,
        mutation: Mutation[None],
        path: NamespacePath,
        mode: DropMode,
        behavior: DropBehavior,
        policy: DependantPolicy = DependantPolicy.RESTRICT,
    ) -> None:
        """The policy is for views elsewhere that are made from tables in the namespace."""
        authorize(self._authorizer, mutation.caller, needs_to_change(path))
        _refuse_root(path, "dropped")
        self._remove_files(retry_deadlocks(lambda: self._drop(mutation, path, mode, behavior, policy)))

    def _create(
        self, mutation: Mutation[Namespace], new: Namespace, mode: CreateMode
    ) -> tuple[Namespace, Sequence[Table]]:
        """Returns the namespace, and the tables that were dropped with the one it replaces."""
        path = new.path
        dropped: Sequence[Table] = ()
        with self._store.transaction() as tx:
            mutation.record(tx, new)
            existing = tx.namespaces.find(path)
            if existing is not None and mode is CreateMode.CREATE:
                raise NamespaceAlreadyExists(path)
            if existing is not None and mode is CreateMode.EXIST_OK:
                return existing, dropped
            if existing is not None:
                # The new namespace is added to the parent.
                tx.namespaces.lock_all([path.parent])
                dropped = self._remove_with_content(tx, mutation.caller, path, DependantPolicy.RESTRICT)
            try:
                tx.namespaces.add(new)
            except NamespaceAlreadyExists:
                # Another caller has created it since the check.
                if mode is CreateMode.EXIST_OK:
                    return tx.namespaces.get(path), dropped
                raise
        return new, dropped

    def _drop(
        self,
        mutation: Mutation[None],
        path: NamespacePath,
        mode: DropMode,
        behavior: DropBehavior,
        policy: DependantPolicy,
    ) -> Sequence[Table]:
        """Returns the tables that were dropped with it."""
        with self._store.transaction() as tx:
            mutation.record(tx, None)
            if tx.namespaces.find(path) is None:
                if mode is DropMode.SKIP:
                    return ()
                raise NamespaceNotFound(path)
            if behavior is DropBehavior.CASCADE:
                return self._remove_with_content(tx, mutation.caller, path, policy)
            tx.namespaces.remove(path)
            return ()

    def _remove_with_content(
        self, tx: CatalogTransaction, caller: Caller, path: NamespacePath, policy: DependantPolicy
    ) -> Sequence[Table]:
        tx.namespaces.lock_tree(path)
        tables = tx.tables.list_under(path)
        removed = lock_for_removal(tx, self._authorizer, caller, f"Namespace {path}", tables, policy)
        for table in removed:
            tx.tables.remove(table.table_id)
        tx.tables.remove_iceberg_names(path)
        for descendant in _deepest_first(tx, path):
            tx.secrets.remove_in(descendant)
            tx.namespaces.remove(descendant)
        return removed

    def _located(self, namespace: Namespace) -> Namespace:
        return replace(namespace, location=namespace_location(namespace, self._warehouse))

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


def _deepest_first(tx: CatalogTransaction, path: NamespacePath) -> Iterator[NamespacePath]:
    for child in tx.namespaces.list_children(path, Page()):
        yield from _deepest_first(tx, child.path)
    yield path
