"""Registers, deregisters and renames tables. Their data stays where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import uuid4

from tidemill.catalog.errors import InvalidTableState, TableAlreadyExists, TableStorageMissing
from tidemill.catalog.locations import TableLocations
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import DependantPolicy, NamespacePath, TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Table, TableKind, VersionEntry
from tidemill.catalog.operations.dependants import lock_for_removal
from tidemill.catalog.ports import Authorizer, CatalogStore, CatalogTransaction, TableFiles
from tidemill.catalog.retries import retry_deadlocks
from tidemill.errors import InvalidInput
from tidemill.lance.model.tables import RegisterMode
from tidemill.lance.versions.commit import VersionOperations
from tidemill.lance.versions.manifests import StoredManifests


class RegistrationOperations:
    def __init__(
        self,
        store: CatalogStore,
        authorizer: Authorizer,
        files: TableFiles,
        versions: VersionOperations,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self._locations = TableLocations(files)
        self._manifests = StoredManifests(files)
        self._versions = versions

    def register(
        self,
        caller: Caller,
        ident: TableIdent,
        location: str,
        mode: RegisterMode,
        properties: Mapping[str, str],
    ) -> Table:
        """Gives a name to a table that exists in storage, and adds its versions to the catalog."""
        replaces = mode is RegisterMode.OVERWRITE
        self._authorizer.require(caller, Permission.MANAGE if replaces else Permission.WRITE, ident)
        table = Table(uuid4(), ident, self._locations.normalize(location), properties=dict(properties))
        with self._store.transaction() as tx:
            _find_replaced(tx, ident, mode)
        self._check_readable(table)
        retry_deadlocks(lambda: self._add_or_replace(caller, table, mode))
        self._versions.find_latest(table)
        return table

    def deregister(
        self, caller: Caller, ident: TableIdent, policy: DependantPolicy = DependantPolicy.RESTRICT
    ) -> Table:
        """Keeps the data and the versions: their manifests are published before the rows are removed.

        Raises HasDependants like a drop. Views that go with the table are dropped with their data.
        """
        self._authorizer.require(caller, Permission.MANAGE, ident)
        with suppress(TableStorageMissing):
            self._versions.find_latest(self._versions.get_table(ident, MAIN_BRANCH))
        removed = retry_deadlocks(lambda: self._remove(caller, ident, policy))
        for view in removed[1:]:
            self._files.remove_table(view.location)
        return removed[0]

    def rename(self, caller: Caller, ident: TableIdent, target: TableIdent) -> None:
        self._authorizer.require(caller, Permission.MANAGE, ident)
        self._authorizer.require(caller, Permission.WRITE, target)
        retry_deadlocks(lambda: self._rename(ident, target))

    def _add_or_replace(self, caller: Caller, table: Table, mode: RegisterMode) -> None:
        with self._store.transaction() as tx:
            # The root is the lock for locations.
            tx.namespaces.lock_all([NamespacePath(), table.ident.namespace])
            replaced = _find_replaced(tx, table.ident, mode)
            if replaced is not None:
                restrict = DependantPolicy.RESTRICT
                lock_for_removal(tx, self._authorizer, caller, f"Table {table.ident}", [replaced], restrict)
                tx.tables.remove(replaced.table_id)
            self._locations.check_free(tx, table.location)
            tx.tables.add(table)

    def _remove(self, caller: Caller, ident: TableIdent, policy: DependantPolicy) -> Sequence[Table]:
        with self._store.transaction() as tx:
            table = tx.tables.get(ident)
            removed = lock_for_removal(tx, self._authorizer, caller, f"Table {ident}", [table], policy)
            for each in removed:
                tx.tables.remove(each.table_id)
        return removed

    def _rename(self, ident: TableIdent, target: TableIdent) -> None:
        with self._store.transaction() as tx:
            tx.tables.get(ident)
            if target == ident:
                raise TableAlreadyExists(target)
            tx.namespaces.lock_all([ident.namespace, target.namespace])
            tx.tables.rename(tx.tables.get(ident).table_id, target)

    def _check_readable(self, table: Table) -> None:
        """Checks the newest manifest like one that a client commits, because it is just as untrusted."""
        manifests = self._manifests.find_all(table).final
        if not manifests:
            raise InvalidInput("location", f"there is no Lance table at {table.location}")
        newest = max(manifests)
        try:
            self._manifests.check_content(table, VersionEntry(newest, manifests[newest]))
        except InvalidInput as error:
            raise InvalidInput("location", f"version {newest} at {table.location}: {error}") from error


def _find_replaced(tx: CatalogTransaction, ident: TableIdent, mode: RegisterMode) -> Table | None:
    """The table that a registration replaces; raises if it must not be replaced."""
    if not ident.namespace.is_root:
        tx.namespaces.get(ident.namespace)
    existing = tx.tables.find(ident)
    if existing is None:
        return None
    if mode is RegisterMode.CREATE:
        raise TableAlreadyExists(ident)
    if existing.kind is not TableKind.TABLE:
        noun = "a materialized view" if existing.kind is TableKind.VIEW else "a view"
        raise InvalidTableState(ident, f"is {noun} and cannot be replaced by a table; drop it first")
    return existing
