"""Table versions: commits by put-if-not-exists, with the catalog database as the arbiter."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import Final

from tidemill.catalog.errors import (
    BranchNotFound,
    TableHasNoData,
    TableIsQuery,
    TableVersionAlreadyExists,
    TableVersionNotFound,
)
from tidemill.catalog.haste import may_take_time
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.refs import check_branch_name
from tidemill.catalog.model.tables import MAIN_BRANCH, Page, Table, TableKind, TableVersion, VersionEntry
from tidemill.catalog.operations.manifests import StoredManifests
from tidemill.catalog.ports import (
    Authorizer,
    CatalogStore,
    CatalogTransaction,
    ManifestCheck,
    TableFiles,
    TransactionEffect,
)
from tidemill.errors import InvalidInput, Unavailable

FEW_VERSIONS: Final = 20
"""So many are looked for in storage one by one; for more the directory is listed."""


class Order(Enum):
    ASCENDING = "ascending"
    DESCENDING = "descending"


class VersionOperations:
    def __init__(
        self, store: CatalogStore, authorizer: Authorizer, files: TableFiles, check: ManifestCheck
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._manifests = StoredManifests(files, check)

    def create(self, caller: Caller, ident: TableIdent, branch: str, entry: VersionEntry) -> TableVersion:
        """Commits what a client staged. A new branch comes with its first version, before its reference."""
        self._authorizer.require(caller, Permission.WRITE, ident)
        table = self.get_table(ident, branch)
        size = self.check_entry(table, entry)
        with self._store.transaction() as tx:
            version = self.add(tx, table, replace(entry, manifest_size=size))
        return self.settle(table, version, entry)

    def check_entry(self, table: Table, entry: VersionEntry) -> int | None:
        """Reads a client's staged manifest, unless its version is there already: that is for the commit.

        Returns the size of what it has read.
        """
        self._manifests.check_request(table, entry)
        latest = self.find_latest(table)
        with self._store.reading() as tx:
            existing = _find_at(tx, table, latest, entry.version)
        if existing is not None:
            return None
        _check_follows(table, latest, entry.version)
        return self._manifests.check_content(table, entry)

    def check_content(self, table: Table, entry: VersionEntry) -> None:
        """Reads a client's staged manifest of a table that has no versions yet."""
        self._manifests.check_request(table, entry)
        self._manifests.check_content(table, entry)

    def commit(
        self, table: Table, entry: VersionEntry, also: TransactionEffect | None = None
    ) -> TableVersion:
        """Inserts the version's row if there is none, together with `also`; then puts its manifest in place.

        The row is the commit. A crash after it leaves a readable row on the staged manifest.
        """
        self._manifests.check_request(table, entry)
        self.find_latest(table)
        size = self._manifests.find_size(entry)
        with self._store.transaction() as tx:
            version = self.add(tx, table, replace(entry, manifest_size=size), also)
        return self.settle(table, version, entry)

    def add(
        self,
        tx: CatalogTransaction,
        table: Table,
        entry: VersionEntry,
        also: TransactionEffect | None = None,
    ) -> TableVersion:
        """The row part of a commit; returns the row that was there when the version exists."""
        latest = tx.versions.find_latest(table.table_id, table.branch)
        existing = _find_at(tx, table, latest, entry.version)
        if existing is not None:
            return existing
        if also is not None:
            also(tx, entry.version)
            # It may have waited for another writer.
            latest = tx.versions.find_latest(table.table_id, table.branch)
        _check_follows(table, latest, entry.version)
        version = TableVersion(
            table_id=table.table_id,
            branch=table.branch,
            version=entry.version,
            manifest_path=self._manifests.final_key(table, entry.version, entry.naming_scheme),
            staged_path=entry.manifest_path,
            manifest_size=self._manifests.get_size(entry),
            created_at=tx.now(),
            e_tag=entry.e_tag,
            metadata=entry.metadata,
        )
        tx.versions.add(version)
        return version

    def add_replayable(self, tx: CatalogTransaction, table: Table, entry: VersionEntry) -> TableVersion:
        """Like `add`, for entries among others: somebody else's version there undoes the transaction."""
        self._manifests.check_request(table, entry)
        size = self._manifests.find_size(entry)
        version = self.add(tx, table, replace(entry, manifest_size=size))
        if version.staged_path != entry.manifest_path:
            raise TableVersionAlreadyExists(table.ident, entry.version)
        return version

    def settle(self, table: Table, version: TableVersion, entry: VersionEntry) -> TableVersion:
        """The storage part of a commit. The same request again gets the same answer, another's a conflict."""
        promoted = self._promote(version)
        is_ours = version.staged_path == entry.manifest_path or self._manifests.is_same(
            entry.manifest_path, promoted.manifest_path
        )
        if not is_ours:
            raise TableVersionAlreadyExists(table.ident, entry.version)
        return promoted

    def list_versions(
        self, caller: Caller, ident: TableIdent, branch: str, order: Order, page: Page
    ) -> Sequence[TableVersion]:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self.get_branch(ident, branch)
        latest = self.find_latest(table)
        if latest is None:
            return []
        if order is Order.DESCENDING and page == Page(limit=1):
            return [latest]
        found = self._page(table, order, page)
        if page.limit is not None and page.limit <= FEW_VERSIONS:
            readable = [latest if version == latest else self._readable(version) for version in found]
            if None not in readable:
                return [version for version in readable if version is not None]
        self._reconcile(table)
        return self._page(table, order, page)

    def _page(self, table: Table, order: Order, page: Page) -> Sequence[TableVersion]:
        after = None if page.after is None else _version_token(page.after)
        with self._store.reading() as tx:
            return tx.versions.list_page(
                table.table_id, table.branch, after, page.limit, is_descending=order is Order.DESCENDING
            )

    def describe(self, caller: Caller, ident: TableIdent, branch: str, version: int | None) -> TableVersion:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self.get_branch(ident, branch)
        return self.get_latest(table) if version is None else self.get(table, version)

    def find(self, table: Table, version: int) -> TableVersion | None:
        with self._store.reading() as tx:
            found = tx.versions.find(table.table_id, table.branch, version)
        if found is None:
            self._reconcile_if_ahead(table)
            with self._store.reading() as tx:
                found = tx.versions.find(table.table_id, table.branch, version)
        return None if found is None else self._readable(found)

    def get(self, table: Table, version: int) -> TableVersion:
        found = self.find(table, version)
        if found is None:
            raise TableVersionNotFound(table.ident, version)
        return found

    def find_latest(self, table: Table) -> TableVersion | None:
        """The newest version that can be read; None while there is no data.

        Clients delete manifests and write versions without telling us; that is noticed here.
        """
        with self._store.reading() as tx:
            latest = tx.versions.find_latest(table.table_id, table.branch)
        if latest is not None:
            readable = self._readable(latest)
            if readable is not None and not self._manifests.has(self._manifests.next_key(table, readable)):
                return readable
        if not self._reconcile(table):
            return None
        with self._store.reading() as tx:
            return tx.versions.find_latest(table.table_id, table.branch)

    def get_latest(self, table: Table) -> TableVersion:
        latest = self.find_latest(table)
        if latest is None:
            raise TableHasNoData(table.ident)
        return latest

    def get_table(self, ident: TableIdent, branch: str) -> Table:
        """The table on a branch that need not exist yet."""
        if branch != MAIN_BRANCH:
            check_branch_name(branch)
        with self._store.reading() as tx:
            table = tx.tables.get(ident)
        if table.kind is TableKind.QUERY:
            raise TableIsQuery(table)
        return table.on(branch)

    def get_branch(self, ident: TableIdent, branch: str) -> Table:
        """The table on a branch that exists; raises BranchNotFound, and never means main instead."""
        table = self.get_table(ident, branch)
        is_there = (
            branch == MAIN_BRANCH
            or self._manifests.has_branch(table)
            # Its first version comes before its reference.
            or self.find_latest(table) is not None
        )
        if not is_there:
            raise BranchNotFound(ident, branch)
        return table

    def remove_manifests(self, versions: Sequence[TableVersion]) -> None:
        """Takes the manifests of versions whose rows are gone out of storage; the data stays."""
        for version in versions:
            self._manifests.remove(version.manifest_path)
            self._manifests.remove(version.staged_path)

    def _readable(self, version: TableVersion) -> TableVersion | None:
        """A crash may have left the manifest at its staged place."""
        if self._manifests.has(version.manifest_path):
            return version
        may_take_time()
        return self._promote(version) if self._manifests.has(version.staged_path) else None

    def _promote(self, version: TableVersion) -> TableVersion:
        """Gives the staged manifest its final name; until that works, readers use the staged one."""
        if version.manifest_path == version.staged_path:
            return version
        try:
            self._manifests.promote(version)
        except (OSError, Unavailable):
            return replace(version, manifest_path=version.staged_path)
        with suppress(OSError, Unavailable):
            self._manifests.remove(version.staged_path)
        return version

    def _reconcile_if_ahead(self, table: Table) -> None:
        with self._store.reading() as tx:
            latest = tx.versions.find_latest(table.table_id, table.branch)
        if latest is None or self._manifests.has(self._manifests.next_key(table, latest)):
            self._reconcile(table)

    def _reconcile(self, table: Table) -> bool:
        """Makes the rows tell what storage holds; returns whether there is any version."""
        may_take_time()
        stored = self._manifests.find_all(table)
        with self._store.transaction() as tx:
            rows = tx.versions.list_all(table.table_id, table.branch)
            # A version committed since the listing is not in it: those are looked for one by one.
            gone = [
                row
                for row in rows
                if row.version not in stored.final
                and not self._manifests.has(row.manifest_path)
                and not self._manifests.has(row.staged_path)
            ]
            known = {row.version for row in rows}
            found = [(version, key) for version, key in sorted(stored.final.items()) if version not in known]
            for row in gone:
                tx.versions.remove(row.table_id, row.branch, row.version)
            for version, key in found:
                size = self._manifests.size_of(key)
                # Another server may have found it, too.
                with suppress(TableVersionAlreadyExists):
                    if size is not None:
                        tx.versions.add(
                            TableVersion(table.table_id, table.branch, version, key, key, size, tx.now())
                        )
            if gone:
                newest = max((row.version for row in rows if row not in gone), default=0)
                lost = [row.version for row in gone if row.version > newest]
                if lost:
                    # Their numbers will be given out again: what was computed from them counts no more.
                    tx.versions.forget_results(table.table_id, table.branch, min(lost))
        for row in rows:
            # A crash may have come between the final place and the clean-up.
            if row.version in stored.final and row.staged_path in stored.staged:
                self._manifests.remove(row.staged_path)
        return bool(found) or len(gone) < len(rows)


def _find_at(
    tx: CatalogTransaction, table: Table, latest: TableVersion | None, version: int
) -> TableVersion | None:
    """The version of that number; nothing comes after the latest."""
    if latest is None or version > latest.version:
        return None
    return latest if latest.version == version else tx.versions.find(table.table_id, table.branch, version)


def _check_follows(table: Table, latest: TableVersion | None, version: int) -> None:
    if latest is None and table.branch != MAIN_BRANCH:
        # A branch starts with the number of the version it was made from.
        return
    expected = 1 if latest is None else latest.version + 1
    if version < expected:
        raise TableVersionAlreadyExists(table.ident, version)
    if version > expected:
        raise InvalidInput("version", f"is {version}, but the next version of {table.ident} is {expected}")


def _version_token(token: str) -> int:
    if not (token.isascii() and token.isdigit() and len(token) < 20):
        raise InvalidInput("page_token", f"{token!r:.60} is not a token of a version listing")
    return int(token)
