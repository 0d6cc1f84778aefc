"""Table versions: commits with put-if-absent.

Two things decide whose version n is. Among writers that use the catalog it is the row of (table, branch, n)
in the database. Writers by location do not ask the catalog: they put the manifest at its final name if there
is none. So the final name decides, and the row only reserves it:

1. *reserve*: insert the row, with the digest of the staged manifest; an existing row is a conflict;
2. *publish*: give the staged manifest its final name, if that is free (`StoredManifests.publish`);
3. *settle*: if the manifest there is ours, apply the deferred writes and remove the staged manifest; if it is
   another writer's, replace the row by one for that version, and report a conflict.

Nothing is acknowledged before step 3. A process that dies in between leaves a row, and the next reader of the
table completes the missing steps. The row alone is not enough, because writers by location never see it.
The final name alone is not enough, because bookkeeping in the database must become visible together with the
version. docs/consistency.md has the full argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

import structlog

from tidemill.catalog.errors import (
    BranchNotFound,
    TableHasNoData,
    TableIsQuery,
    TableNotFound,
    TableVersionAlreadyExists,
    TableVersionNotFound,
)
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Page, Table, TableKind, TableVersion, VersionEntry
from tidemill.catalog.ports import Authorizer, TableFiles
from tidemill.catalog.retries import run_repeatable
from tidemill.errors import CommitStateUnknown, InvalidInput, TidemillError, Unavailable
from tidemill.jobs.ports import JobStore, JobTransaction, TransactionEffect
from tidemill.lance.model.tables import check_branch_name
from tidemill.lance.versions.manifest_format import read_field_ids, read_manifest
from tidemill.lance.versions.manifests import (
    StagedManifest,
    StagedManifestMissing,
    StoredManifests,
    scheme_for,
)
from tidemill.lance.versions.reconcile import VersionOvertaken, VersionSettling

MAX_CHECKED_SINGLY: Final = 20
"""Up to this many versions are checked in storage one by one; for more, the directory is listed."""
ATTEMPTS: Final = 5

log = structlog.get_logger("tidemill.catalog")


class Order(Enum):
    ASCENDING = "ascending"
    DESCENDING = "descending"


class VersionOperations:
    def __init__(self, store: JobStore, authorizer: Authorizer, files: TableFiles) -> None:
        self._store = store
        self._authorizer = authorizer
        self._manifests = StoredManifests(files)
        self._settling = VersionSettling(store, self._manifests)
        self.remove_deleted = self._settling.remove_deleted
        self.withdraw = self._settling.withdraw
        self.resolved = self._manifests.resolved
        # Called when a commit gives other names or ids to fields that computed columns use.
        self.on_other_fields: Callable[[Table], object] | None = None

    def create(self, caller: Caller, ident: TableIdent, branch: str, entry: VersionEntry) -> TableVersion:
        """Commits a client's staged manifest. The first version of a branch comes before its reference."""
        self._authorizer.require(caller, Permission.WRITE, ident)
        table = self.get_table(ident, branch)
        resolved = self.resolved(table, entry)
        return self._commit(table, resolved, lambda: self.check_entry(table, resolved), None)

    def check_entry(self, table: Table, entry: VersionEntry) -> StagedManifest | None:
        """Reads and checks a client's staged manifest; None if the version exists already."""
        self._manifests.check_request(table, entry)
        latest = self.find_latest(table)
        with self._store.reading() as tx:
            existing = _find_at(tx, table, latest, entry.version)
            if existing is not None:
                return None
            _check_follows(tx, table, latest, entry.version)
        return self._manifests.check_content(table, entry)

    def check_content(self, table: Table, entry: VersionEntry) -> StagedManifest:
        """Reads and checks the staged manifest of a client for a table that has no versions yet."""
        self._manifests.check_request(table, entry)
        return self._manifests.check_content(table, entry)

    def commit(
        self, table: Table, entry: VersionEntry, on_commit: TransactionEffect | None = None
    ) -> TableVersion:
        """Commits a manifest that this process staged. `on_commit` becomes visible together with it."""
        self._manifests.check_request(table, entry)
        self.find_latest(table)
        return self._commit(table, entry, lambda: self._manifests.find_staged(entry), on_commit)

    def _commit(
        self,
        table: Table,
        entry: VersionEntry,
        read: Callable[[], StagedManifest | None],
        on_commit: TransactionEffect | None,
    ) -> TableVersion:
        """Reserves and publishes; tries again if the conflicting version has disappeared in the meantime."""
        staged: StagedManifest | None = None
        for _ in range(ATTEMPTS):
            try:
                staged = read()
                version = self._reserve(table, entry, staged, on_commit)
                settled = self.publish(table, version, entry, staged)
            except StagedManifestMissing:
                # It may have been removed with its table or branch.
                self._check_exists(table)
                if staged is not None:
                    self._check_branch_exists(table)
                    raise
            else:
                if settled is not None:
                    self._follow_fields(table, staged)
                    return settled
        if staged is None:
            raise StagedManifestMissing(entry)
        raise Unavailable(
            f"Version {entry.version} of {table.ident} keeps appearing and disappearing; try again"
        )

    def _follow_fields(self, table: Table, staged: StagedManifest | None) -> None:
        """Follows renamed fields now: an overwrite and a clean-up would leave nothing to trace them by."""
        if self.on_other_fields is None or staged is None or table.branch != MAIN_BRANCH:
            return
        with self._store.reading() as tx:
            columns = tx.derived.list_columns(table.table_id)
        if not columns:
            return
        try:
            names = read_field_ids(staged.content).items()
            if not all(column.field_ids.items() <= names for column in columns):
                self.on_other_fields(table)
        except (TidemillError, OSError, ValueError) as error:
            # The commit is done; whoever looks at the columns next follows them.
            log.warning("fields_not_followed", table=str(table.ident), error=str(error)[:200])

    def _reserve(
        self,
        table: Table,
        entry: VersionEntry,
        staged: StagedManifest | None,
        on_commit: TransactionEffect | None,
    ) -> TableVersion:
        try:
            # Repeatable: it returns the row that an earlier attempt inserted, or inserts it.
            return run_repeatable(
                self._store.transaction, lambda tx: self.add(tx, table, entry, staged, on_commit)
            )
        except TableVersionAlreadyExists:
            # Another writer was faster, perhaps with the very same request.
            with self._store.reading() as tx:
                existing = tx.versions.find(table.table_id, table.branch, entry.version)
            if existing is None:
                raise
            return existing

    def add(
        self,
        tx: JobTransaction,
        table: Table,
        entry: VersionEntry,
        staged: StagedManifest | None,
        on_commit: TransactionEffect | None = None,
    ) -> TableVersion:
        """Reserves the number; returns the existing row if the version exists."""
        latest = tx.versions.find_latest(table.table_id, table.branch)
        existing = _find_at(tx, table, latest, entry.version)
        if existing is not None:
            return existing
        deferred = None
        if on_commit is not None:
            deferring = tx.deferring()
            on_commit(deferring.transaction, entry.version)
            deferred = deferring.packed()
            # `on_commit` may have waited for another writer.
            latest = tx.versions.find_latest(table.table_id, table.branch)
        _check_follows(tx, table, latest, entry.version)
        scheme = scheme_for(table, entry, latest)
        if staged is None:
            raise StagedManifestMissing(entry)
        if latest is None and table.branch != MAIN_BRANCH:
            _check_starts_branch(table, staged)
        version = TableVersion(
            table_id=table.table_id,
            branch=table.branch,
            version=entry.version,
            manifest_path=self._manifests.final_key(table, entry.version, scheme),
            staged_path=entry.manifest_path,
            manifest_size=staged.size,
            created_at=tx.now(),
            e_tag=entry.e_tag,
            metadata=entry.metadata,
            digest=staged.digest,
            deferred=deferred,
        )
        tx.versions.add(version)
        return version

    def add_replayable(
        self, tx: JobTransaction, table: Table, entry: VersionEntry, staged: StagedManifest | None
    ) -> TableVersion:
        """Like `add`, but raises TableVersionAlreadyExists for the version of another request."""
        try:
            version: TableVersion | None = self.add(tx, table, entry, staged)
        except TableVersionAlreadyExists:
            version = tx.versions.find(table.table_id, table.branch, entry.version)
        if version is None or version.staged_path != entry.manifest_path:
            raise TableVersionAlreadyExists(table.ident, entry.version)
        return version

    def publish(
        self, table: Table, version: TableVersion, entry: VersionEntry, staged: StagedManifest | None
    ) -> TableVersion | None:
        """Publishes and settles a reserved version. A repeated request gets the same result.

        None if the number belonged to another writer and is free again. Raises TableVersionAlreadyExists if
        the version is another writer's, VersionOvertaken, and CommitStateUnknown if storage does not respond;
        then the row stays until a reader can settle it.
        """
        is_ours = version.staged_path == entry.manifest_path
        try:
            settled = self._settling.settle(version, staged if is_ours else None)
            if settled is None:
                # The final manifest is gone, so this version can never be read.
                self._settling.remove_row(version)
                if not is_ours:
                    return None
                if not self._manifests.has(entry.manifest_path):
                    raise StagedManifestMissing(entry)
                # Another writer's manifest had the name and was cleaned up.
                raise TableVersionAlreadyExists(table.ident, entry.version)
            if not self._is_for_entry(settled, entry):
                raise TableVersionAlreadyExists(table.ident, entry.version)
        except VersionOvertaken:
            raise
        except (OSError, Unavailable) as error:
            raise CommitStateUnknown(
                f"Version {entry.version} of {table.ident} is reserved, but it is unknown whether its "
                f"manifest was published ({error}); read the table to find out"
            ) from error
        return settled

    def _is_for_entry(self, version: TableVersion, entry: VersionEntry) -> bool:
        """Whether the version is the one in the request, even if its row was found in storage."""
        if version.staged_path == entry.manifest_path:
            return True
        staged = self._manifests.find_staged(entry)
        return staged is not None and self._manifests.has_content(version.manifest_path, staged)

    def list_versions(
        self, caller: Caller, ident: TableIdent, branch: str, order: Order, page: Page
    ) -> Sequence[TableVersion]:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self.get_branch(ident, branch)
        latest = self.find_latest(table)
        if latest is None:
            self._check_exists(table)
            self._check_branch_exists(table)
            return []
        if order is Order.DESCENDING and page == Page(limit=1):
            return [latest]
        found = self._page(table, order, page)
        if page.limit is not None and page.limit <= MAX_CHECKED_SINGLY:
            readable = [
                latest if version == latest else self._settling.ensure_readable(version) for version in found
            ]
            if None not in readable:
                return [version for version in readable if version is not None]
        self._settling.reconcile(table)
        found = self._page(table, order, page)
        if not found:
            self._check_exists(table)
            self._check_branch_exists(table)
        return found

    def _page(self, table: Table, order: Order, page: Page) -> Sequence[TableVersion]:
        after = None if page.after is None else _parse_page_token(page.after)
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
        readable = None if found is None else self._settling.ensure_readable(found)
        if found is not None and readable is None:
            # It was cleaned up, or storage is unreachable; the latter raises here.
            self._settling.reconcile(table)
        return readable

    def get(self, table: Table, version: int) -> TableVersion:
        found = self.find(table, version)
        if found is None:
            raise TableVersionNotFound(table.ident, version)
        return found

    def find_latest(self, table: Table) -> TableVersion | None:
        """The latest version that can be read; None if the table has no data.

        Notices manifests that were removed or added without the catalog.
        """
        latest = self._find_latest_readable(table)
        if latest is not None and not self._manifests.has(self._manifests.next_key(table, latest)):
            return latest
        for _ in range(ATTEMPTS):
            if not self._settling.reconcile(table):
                return None
            latest = self._find_latest_readable(table)
            if latest is not None:
                return latest
        raise Unavailable(f"The manifests of {table.ident} keep appearing and disappearing; try again")

    def _find_latest_readable(self, table: Table) -> TableVersion | None:
        with self._store.reading() as tx:
            latest = tx.versions.find_latest(table.table_id, table.branch)
        return None if latest is None else self._settling.ensure_readable(latest)

    def get_latest(self, table: Table) -> TableVersion:
        latest = self.find_latest(table)
        if latest is None:
            self._check_exists(table)
            self._check_branch_exists(table)
            raise TableHasNoData(table.ident)
        return latest

    def _check_exists(self, table: Table) -> None:
        """Raises TableNotFound if a table without versions has been dropped since it was looked up."""
        with self._store.reading() as tx:
            if tx.tables.find_by_id(table.table_id) is None:
                raise TableNotFound(table.ident)

    def _check_branch_exists(self, table: Table) -> None:
        """Raises BranchNotFound if a branch without versions has been deleted since it was looked up."""
        if not self._manifests.has_branch(table):
            raise BranchNotFound(table.ident, table.branch)

    def get_table(self, ident: TableIdent, branch: str) -> Table:
        """The table on a branch, which need not exist yet."""
        if branch != MAIN_BRANCH:
            check_branch_name(branch)
        with self._store.reading() as tx:
            table = tx.tables.get(ident)
        if table.kind is TableKind.QUERY:
            raise TableIsQuery(table)
        return table.on(branch)

    def get_branch(self, ident: TableIdent, branch: str) -> Table:
        """The table on a branch; raises BranchNotFound instead of falling back to main."""
        table = self.get_table(ident, branch)
        exists = (
            branch == MAIN_BRANCH
            or self._manifests.has_branch(table)
            # Its first version is committed before its reference.
            or self.find_latest(table) is not None
        )
        if not exists:
            raise BranchNotFound(ident, branch)
        return table

    def _reconcile_if_ahead(self, table: Table) -> None:
        with self._store.reading() as tx:
            latest = tx.versions.find_latest(table.table_id, table.branch)
        if latest is None or self._manifests.has(self._manifests.next_key(table, latest)):
            self._settling.reconcile(table)


def _find_at(
    tx: JobTransaction, table: Table, latest: TableVersion | None, version: int
) -> TableVersion | None:
    """The row of that version, without a query if it follows the latest one."""
    if latest is None or version > latest.version:
        return None
    return latest if latest.version == version else tx.versions.find(table.table_id, table.branch, version)


def _check_follows(tx: JobTransaction, table: Table, latest: TableVersion | None, version: int) -> None:
    if latest is None and table.branch != MAIN_BRANCH:
        # A branch starts with the number of the version it was created from.
        return
    expected = 1 if latest is None else latest.version + 1
    if version == expected:
        return
    if version < 1:
        raise InvalidInput(
            "version", f"is {version}, but versions start at 1; the next one of {table.ident} is {expected}"
        )
    if latest is None and tx.tables.find_by_id(table.table_id) is None:
        # Dropped since it was looked up.
        raise TableNotFound(table.ident)
    if version < expected:
        raise TableVersionAlreadyExists(table.ident, version)
    raise InvalidInput("version", f"is {version}, but the next version of {table.ident} is {expected}")


def _check_starts_branch(table: Table, staged: StagedManifest) -> None:
    """Rejects a late commit on a branch that was deleted; it would bring the branch back without its past."""
    if not read_manifest(staged.content).is_start_of_branch:
        raise BranchNotFound(table.ident, table.branch)


def _parse_page_token(token: str) -> int:
    if not (token.isascii() and token.isdigit() and len(token) < 20):
        raise InvalidInput("page_token", f"{token!r:.60} is not a page token of this listing")
    return int(token)
