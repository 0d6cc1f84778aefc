"""Brings the rows of versions and the manifests in storage together.

A row reserves a version's number, and the manifest at its final name decides who has it. Between the two a
process may die, and other writers work in storage without asking. Everything here can be done by anybody, at
any time and more than once: the writer that reserved the number, the next reader, several of them at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import structlog

from tidemill.catalog.errors import TableStorageMissing, TableVersionAlreadyExists
from tidemill.catalog.model.tables import MAIN_BRANCH, Table, TableVersion
from tidemill.catalog.nonblocking import may_block
from tidemill.catalog.operations.manifests import Listing, Publication, StagedManifest, StoredManifests
from tidemill.catalog.ports import CatalogStore, CatalogTransaction
from tidemill.catalog.retries import run_repeatable
from tidemill.errors import Unavailable

log = structlog.get_logger("tidemill.catalog")


class VersionSettling:
    def __init__(self, store: CatalogStore, manifests: StoredManifests) -> None:
        self._store = store
        self._manifests = manifests

    def remove_deleted(self, versions: Sequence[TableVersion]) -> None:
        """Takes the manifests of versions that are marked as deleted out of storage; the data stays.

        What a crash interrupts is finished by the next reader that lists the directory.
        """
        if not versions:
            return
        for version in versions:
            self._manifests.remove(version.staged_path)
            self._manifests.remove(version.manifest_path)

        def remove(tx: CatalogTransaction) -> None:
            for version in versions:
                tx.versions.remove(version.table_id, version.branch, version.version)

        run_repeatable(self._store, remove)

    def withdraw(self, table: Table, version: TableVersion) -> None:
        """Takes a version back that has just been committed, unless somebody has built on it already."""

        def withdraw(tx: CatalogTransaction) -> None:
            tx.tables.lock(table)
            latest = tx.versions.find_latest(table.table_id, table.branch)
            is_newest = latest is not None and _is_same(latest, version)
            if not is_newest or self._manifests.has(self._manifests.next_key(table, version)):
                log.warning("a version stays", table=str(table.ident), version=version.version)
                return
            tx.versions.remove(version.table_id, version.branch, version.version)
            self._manifests.remove(version.staged_path)
            self._manifests.remove(version.manifest_path)

        run_repeatable(self._store, withdraw)

    def ensure_readable(self, version: TableVersion) -> TableVersion | None:
        """The version with its manifest in place: a crash may have left that to the next reader.

        None when the manifest is gone. The version may turn out to be another writer's.
        """
        size = self._manifests.size_of(version.manifest_path)
        if version.deferred is None and size == version.manifest_size:
            return version
        may_block()
        try:
            # One that others followed had its manifest in place once; it was cleaned up since.
            return None if size is None and self._has_followers(version) else self.settle(version)
        except OSError as error:
            raise Unavailable(f"The storage of version {version.version} does not answer: {error}") from error

    def settle(self, version: TableVersion, staged: StagedManifest | None = None) -> TableVersion | None:
        """Publishes the manifest of a row and records what came of it; returns the row as it is then."""
        match self._manifests.publish(version, staged):
            case Publication.OURS:
                settled = self._record(version)
                if not version.was_found:
                    with suppress(OSError, Unavailable):
                        self._manifests.remove(version.staged_path)
                return settled
            case Publication.FOREIGN:
                return self._replace_row(version)
            case Publication.MISSING:
                return None

    def _has_followers(self, version: TableVersion) -> bool:
        with self._store.reading() as tx:
            latest = tx.versions.find_latest(version.table_id, version.branch)
        return latest is not None and latest.version > version.version

    def _record(self, version: TableVersion) -> TableVersion:
        """Makes the writes that waited for the manifest, once: whoever clears the row has made them."""
        deferred = version.deferred
        if deferred is None:
            return version

        def record(tx: CatalogTransaction) -> None:
            current = tx.versions.find(version.table_id, version.branch, version.version)
            if current is not None and current.deferred is not None:
                tx.apply(deferred)
                if not tx.versions.settle(version):
                    raise _AlreadyRecorded

        with suppress(_AlreadyRecorded):
            run_repeatable(self._store, record)
        return replace(version, deferred=None)

    def _replace_row(self, version: TableVersion) -> TableVersion | None:
        """Another writer's manifest has the name that the row reserved: the row is made to tell of theirs."""
        size = self._manifests.size_of(version.manifest_path)

        def replace_row(tx: CatalogTransaction) -> TableVersion | None:
            current = tx.versions.lock(version)
            if current is None:
                # Whoever exchanged it while we waited for the lock put another row in its place.
                return tx.versions.find(version.table_id, version.branch, version.version)
            if not _is_same(current, version):
                return current
            tx.versions.remove(version.table_id, version.branch, version.version)
            if size is None:
                return None
            found = _found_version(
                version.table_id, version.branch, version.version, version.manifest_path, size, tx
            )
            tx.versions.add(found)
            return found

        return run_repeatable(self._store, replace_row)

    def remove_row(self, version: TableVersion) -> None:
        def remove(tx: CatalogTransaction) -> None:
            current = tx.versions.lock(version)
            if current is not None and _is_same(current, version):
                tx.versions.remove(version.table_id, version.branch, version.version)

        run_repeatable(self._store, remove)

    def reconcile(self, table: Table) -> bool:
        """Makes the rows tell what storage holds; returns whether there is any version."""
        may_block()
        stored = self._manifests.find_all(table)
        with self._store.reading() as tx:
            rows = tx.versions.list_all(table.table_id, table.branch)
            deleted = tx.versions.list_deleted(table.table_id, table.branch)
        self.remove_deleted(deleted)
        known = {row.version for row in (*rows, *deleted)}
        suspects = [row for row in rows if row.version not in stored.final]
        if rows and len(suspects) == len(rows):
            self._check_storage(table, rows, stored)
        found = {version: key for version, key in sorted(stored.final.items()) if version not in known}
        newest = max((*known, *found), default=0)
        gone = [row for row in suspects if self._is_gone(row, newest)]
        if gone or found:
            self._update_rows(table, gone, found, newest)
        for row in rows:
            # A crash may have come before the manifest was in place, or before the staged one was removed.
            if row.staged_path in stored.staged and row not in gone:
                self.settle(row)
        return bool(found) or len(gone) < len(rows)

    def _update_rows(
        self, table: Table, suspects: Sequence[TableVersion], found: dict[int, str], newest: int
    ) -> None:
        """Removes rows whose manifest is gone and adds those of manifests that were found.

        Under the table's lock, and looking again: what was listed may have been cleaned up since.
        """

        def update_rows(tx: CatalogTransaction) -> None:
            tx.tables.lock(table)
            rows = {row.version: row for row in tx.versions.list_all(table.table_id, table.branch)}
            gone = [
                row
                for row in suspects
                if row.version in rows and _is_same(rows[row.version], row) and self._is_gone(row, newest)
            ]
            left = rows.keys() - {row.version for row in gone}
            lost = [row.version for row in gone if row.version > max(left, default=0)]
            if lost:
                # Their numbers will be given out again: what was computed from them counts no more.
                tx.versions.forget_results(table.table_id, table.branch, min(lost))
            for row in gone:
                tx.versions.remove(row.table_id, row.branch, row.version)
            deleted = {row.version for row in tx.versions.list_deleted(table.table_id, table.branch)}
            for version, key in found.items():
                if version in deleted:
                    continue
                size = self._manifests.size_of(key)
                # Another server may have found it, too.
                with suppress(TableVersionAlreadyExists):
                    if size is not None:
                        tx.versions.add(_found_version(table.table_id, table.branch, version, key, size, tx))

        run_repeatable(self._store, update_rows)

    def _is_gone(self, row: TableVersion, newest: int) -> bool:
        """Whether the manifest was there and is not, as opposed to: is not there yet.

        In this order: the staged manifest is removed only once the final one is there. A version that others
        followed had its manifest in place, whatever was left behind where it was staged.
        """
        is_staged = row.version >= newest and self._manifests.has(row.staged_path)
        return not is_staged and not self._manifests.has(row.manifest_path)

    def _check_storage(self, table: Table, rows: Sequence[TableVersion], stored: Listing) -> None:
        """Refuses to take storage that shows none of a table's versions for a table without versions.

        A branch, though, is deleted by clients that do not tell us; then its table is still there.
        """
        if any(row.staged_path in stored.staged for row in rows):
            return
        is_deleted_branch = table.branch != MAIN_BRANCH and bool(
            self._manifests.find_all(table.on(MAIN_BRANCH)).final
        )
        if not is_deleted_branch and all(self._is_gone(row, rows[-1].version) for row in rows):
            raise TableStorageMissing(table.ident, table.location, rows[-1].version)


class _AlreadyRecorded(Exception):
    """Somebody else has made the deferred writes of a version; ours are undone."""


def _is_same(left: TableVersion, right: TableVersion) -> bool:
    """Whether two rows of one number mean the same manifest."""
    return (left.staged_path, left.manifest_size) == (right.staged_path, right.manifest_size)


def _found_version(
    table_id: UUID, branch: str, version: int, key: str, size: int, tx: CatalogTransaction
) -> TableVersion:
    return TableVersion(table_id, branch, version, key, key, size, tx.now())
