"""Reconciles the version rows in the database with the manifests in storage.

A row reserves the number of a version, and the manifest at its final name decides whose version it is. A
process may die between the two steps, and writers by location change storage without asking the catalog. So
rows and manifests can differ at any time: a row whose manifest is not published yet, was cleaned up, or is
another writer's; or a manifest without a row.

Commits settle their own version, and readers repair what they come across (`ensure_readable`, `reconcile`).
Everything here can run in any process, at any time, more than once and concurrently. Two mistakes would lose
data: taking "not published yet" for "gone" (`_is_gone` checks in a safe order), and taking unreachable
storage for a table without versions (`_check_storage`). docs/consistency.md has the full argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final
from uuid import UUID

import structlog

from tidemill.catalog.auditing import acting, acting_as_server, note_object
from tidemill.catalog.errors import TableStorageMissing, TableVersionAlreadyExists
from tidemill.catalog.model.tables import MAIN_BRANCH, Table, TableVersion
from tidemill.catalog.nonblocking import may_block
from tidemill.catalog.retries import run_repeatable
from tidemill.errors import CommitStateUnknown, Unavailable
from tidemill.jobs.ports import JobStore, JobTransaction
from tidemill.lance.versions.manifests import Listing, Publication, StagedManifest, StoredManifests

# Operation of the audit event for rows that follow what writers by location did.
ADOPTION: Final = "adopt versions"

log = structlog.get_logger("tidemill.catalog")


class VersionOvertaken(CommitStateUnknown):
    """Writers by location went on past this version and cleaned up before its manifest was published."""

    def __init__(self, version: TableVersion) -> None:
        super().__init__(
            f"Version {version.version} was committed while other writers went on to later versions and "
            "cleaned up older ones; it is unknown whether theirs contain it. Read the table to find out"
        )


class VersionSettling:
    def __init__(self, store: JobStore, manifests: StoredManifests) -> None:
        self._store = store
        self._manifests = manifests

    def remove_deleted(self, versions: Sequence[TableVersion]) -> None:
        """Removes the manifests and then the rows of versions marked as deleted. The data files stay.

        If a crash interrupts this, the next reader that lists the directory finishes it.
        """
        if not versions:
            return
        for version in versions:
            self._manifests.remove(version.staged_path)
            self._manifests.remove(version.manifest_path)

        def remove(tx: JobTransaction) -> None:
            for version in versions:
                tx.versions.remove(version.table_id, version.branch, version.version)

        with acting(None):
            run_repeatable(self._store.transaction, remove)

    def withdraw(self, table: Table, version: TableVersion) -> None:
        """Undoes a version that was just committed, unless a later version exists already."""

        def withdraw(tx: JobTransaction) -> None:
            tx.tables.lock(table)
            latest = tx.versions.find_latest(table.table_id, table.branch)
            is_newest = latest is not None and _is_same(latest, version)
            if not is_newest or self._manifests.has(self._manifests.next_key(table, version)):
                log.warning("version cannot be withdrawn", table=str(table.ident), version=version.version)
                return
            tx.versions.remove(version.table_id, version.branch, version.version)
            self._manifests.remove(version.staged_path)
            self._manifests.remove(version.manifest_path)

        run_repeatable(self._store.transaction, withdraw)

    def ensure_readable(self, version: TableVersion) -> TableVersion | None:
        """Finishes the commit of a version if a crash interrupted it, and returns its row.

        None if the manifest is gone. The row may turn out to be that of another writer's version.
        """
        size = self._manifests.size_of(version.manifest_path)
        if version.deferred is None and size == version.manifest_size:
            return version
        may_block()
        try:
            # If later versions exist, this one was published once and has been cleaned up since.
            return None if size is None and self._has_followers(version) else self.settle(version)
        except VersionOvertaken:
            return None
        except OSError as error:
            raise Unavailable(f"Storage does not respond for version {version.version}: {error}") from error

    def settle(self, version: TableVersion, staged: StagedManifest | None = None) -> TableVersion | None:
        """Publishes the manifest of a row and records the outcome; returns the resulting row."""
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
            case Publication.OVERTAKEN:
                self.remove_row(version)
                raise VersionOvertaken(version)

    def _has_followers(self, version: TableVersion) -> bool:
        with self._store.reading() as tx:
            latest = tx.versions.find_latest(version.table_id, version.branch)
        return latest is not None and latest.version > version.version

    def _record(self, version: TableVersion) -> TableVersion:
        """Applies the deferred writes once: only the process that clears them from the row applies them."""
        deferred = version.deferred
        if deferred is None:
            return version

        def record(tx: JobTransaction) -> None:
            current = tx.versions.find(version.table_id, version.branch, version.version)
            if current is not None and current.deferred is not None:
                tx.apply(deferred)
                if not tx.versions.settle(version):
                    raise _AlreadyRecorded

        # Whoever reserved the version has left the audit row.
        with suppress(_AlreadyRecorded), acting(None):
            run_repeatable(self._store.transaction, record)
        return replace(version, deferred=None)

    def _replace_row(self, version: TableVersion) -> TableVersion | None:
        """Replaces our row by one for the version of another writer, whose manifest has the final name."""
        size = self._manifests.size_of(version.manifest_path)

        def replace_row(tx: JobTransaction) -> TableVersion | None:
            current = tx.versions.lock(version)
            if current is None:
                # Another process replaced the row while we waited for the lock.
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
            table = tx.tables.find_by_id(version.table_id)
            if table is not None:
                note_object(table.ident)
            return found

        with acting_as_server(ADOPTION):
            return run_repeatable(self._store.transaction, replace_row)

    def remove_row(self, version: TableVersion) -> None:
        def remove(tx: JobTransaction) -> None:
            current = tx.versions.lock(version)
            if current is not None and _is_same(current, version):
                tx.versions.remove(version.table_id, version.branch, version.version)

        with acting(None):
            run_repeatable(self._store.transaction, remove)

    def reconcile(self, table: Table) -> bool:
        """Makes the rows match the manifests in storage; returns whether there is any version."""
        may_block()
        stored = self._manifests.find_all(table)
        with self._store.reading() as tx:
            rows = tx.versions.list_all(table.table_id, table.branch)
            deleted = tx.versions.list_deleted(table.table_id, table.branch)
        self.remove_deleted(deleted)
        known_versions = {row.version for row in (*rows, *deleted)}
        suspects = [row for row in rows if row.version not in stored.final]
        if rows and len(suspects) == len(rows) and max(stored.final, default=0) < rows[-1].version:
            self._check_storage(table, rows, stored)
        found = {
            version: key for version, key in sorted(stored.final.items()) if version not in known_versions
        }
        newest = max((*known_versions, *found), default=0)
        gone = [row for row in suspects if self._is_gone(row, newest)]
        if gone or found:
            self._update_rows(table, gone, found, newest)
        for row in rows:
            # A crash may have come before the manifest was published, or before the staged one was removed.
            if row.staged_path in stored.staged and row not in gone:
                with suppress(VersionOvertaken):
                    self.settle(row)
        return bool(found) or len(gone) < len(rows)

    def _update_rows(
        self, table: Table, suspects: Sequence[TableVersion], found: dict[int, str], newest: int
    ) -> None:
        """Removes rows whose manifest is gone and adds rows for manifests that were found.

        Checks again under the table's lock, because listed files may have been cleaned up since.
        """

        def update_rows(tx: JobTransaction) -> None:
            tx.tables.lock(table)
            rows = {row.version: row for row in tx.versions.list_all(table.table_id, table.branch)}
            gone = [
                row
                for row in suspects
                if row.version in rows and _is_same(rows[row.version], row) and self._is_gone(row, newest)
            ]
            added = self._still_there(tx, table, found)
            left = {*added} | rows.keys() - {row.version for row in gone}
            if not left and table.branch == MAIN_BRANCH:
                # What replaced them was cleaned up meanwhile; without any row the numbers would start again.
                return
            lost = [row.version for row in gone if row.version > max(left, default=0)]
            if lost:
                # Their numbers will be reused, so coverage computed from them is no longer valid.
                tx.versions.forget_results(table.table_id, table.branch, min(lost))
            for row in gone:
                tx.versions.remove(row.table_id, row.branch, row.version)
            for row in added.values():
                # Another server may have added it, too.
                with suppress(TableVersionAlreadyExists):
                    tx.versions.add(row)

        with acting_as_server(ADOPTION, table.ident):
            run_repeatable(self._store.transaction, update_rows)

    def _still_there(
        self, tx: JobTransaction, table: Table, found: dict[int, str]
    ) -> dict[int, TableVersion]:
        """Rows for the found manifests that exist and are not being deleted."""
        deleted = {row.version for row in tx.versions.list_deleted(table.table_id, table.branch)}
        sizes = {version: self._manifests.size_of(key) for version, key in found.items()}
        return {
            version: _found_version(table.table_id, table.branch, version, found[version], size, tx)
            for version, size in sizes.items()
            if size is not None and version not in deleted
        }

    def _is_gone(self, row: TableVersion, newest: int) -> bool:
        """Whether the manifest was published and removed, as opposed to not being published yet.

        The order of the checks matters: the staged manifest is removed only after the final one exists. A
        version with later versions was published, even if its staged manifest was left behind.
        """
        is_staged = row.version >= newest and self._manifests.has(row.staged_path)
        return not is_staged and not self._manifests.has(row.manifest_path)

    def _check_storage(self, table: Table, rows: Sequence[TableVersion], stored: Listing) -> None:
        """Raises TableStorageMissing if storage has none of the table's versions: it may be unreachable.

        Not called if storage has newer versions: then writers by location went on and cleaned up. Clients may
        delete a branch without telling the catalog. Then the manifests of main still exist.
        """
        if any(row.staged_path in stored.staged for row in rows):
            return
        is_deleted_branch = table.branch != MAIN_BRANCH and bool(
            self._manifests.find_all(table.on(MAIN_BRANCH)).final
        )
        if not is_deleted_branch and all(self._is_gone(row, rows[-1].version) for row in rows):
            raise TableStorageMissing(table.ident, table.location, rows[-1].version)


class _AlreadyRecorded(Exception):
    """Another process has applied the deferred writes of a version; ours are rolled back."""


def _is_same(left: TableVersion, right: TableVersion) -> bool:
    """Whether two rows of one version are for the same manifest."""
    return (left.staged_path, left.manifest_size) == (right.staged_path, right.manifest_size)


def _found_version(
    table_id: UUID, branch: str, version: int, key: str, size: int, tx: JobTransaction
) -> TableVersion:
    return TableVersion(table_id, branch, version, key, key, size, tx.now())
