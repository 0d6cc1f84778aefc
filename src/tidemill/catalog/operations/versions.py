"""Table versions: commits by put-if-not-exists, with the catalog database as the arbiter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Final

from tidemill.catalog.errors import (
    BranchNotFound,
    TableHasNoData,
    TableVersionAlreadyExists,
    TableVersionNotFound,
)
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Page, Table, TableVersion, VersionEntry
from tidemill.catalog.ports import Authorizer, CatalogStore, TableFiles, TransactionEffect
from tidemill.errors import InvalidInput, Unavailable

MANIFEST_MAGIC: Final = b"LANC"
MAX_MANIFEST_BYTES: Final = 64 << 20
MAX_U64: Final = (1 << 64) - 1
STAGED_NAME: Final = re.compile(r"\d{1,20}\.manifest-[0-9a-f-]{36}")
NAMING_SCHEMES: Final = ("V1", "V2")


class Order(Enum):
    ASCENDING = "ascending"
    DESCENDING = "descending"


class VersionOperations:
    def __init__(self, store: CatalogStore, authorizer: Authorizer, files: TableFiles) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files

    def create(self, caller: Caller, ident: TableIdent, branch: str, entry: VersionEntry) -> TableVersion:
        self._authorizer.require(caller, Permission.WRITE, ident)
        return self.commit(self._table(ident, branch), entry)

    def commit(
        self, table: Table, entry: VersionEntry, also: TransactionEffect | None = None
    ) -> TableVersion:
        """Inserts the version's row if there is none, together with `also`; then puts its manifest in place.

        The row is the commit. A crash after it leaves a readable row on the staged manifest.
        """
        self._check_path(table, entry)
        size = self._files.size_of(entry.manifest_path)
        with self._store.transaction() as tx:
            existing = tx.versions.find(table.table_id, MAIN_BRANCH, entry.version)
            if existing is None:
                if also is not None:
                    also(tx, entry.version)
                latest = tx.versions.find_latest(table.table_id, MAIN_BRANCH)
                _check_follows(table.ident, latest, entry.version)
                version = TableVersion(
                    table_id=table.table_id,
                    branch=MAIN_BRANCH,
                    version=entry.version,
                    manifest_path=entry.manifest_path,
                    staged_path=entry.manifest_path,
                    manifest_size=self._check_manifest(entry, size),
                    created_at=tx.now(),
                    e_tag=entry.e_tag,
                    metadata=entry.metadata,
                )
                tx.versions.add(version)
        if existing is not None:
            return self._replay(table, existing, entry)
        return self._promote(table, version, entry.naming_scheme)

    def list_versions(
        self, caller: Caller, ident: TableIdent, branch: str, order: Order, page: Page
    ) -> Sequence[TableVersion]:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self._table(ident, branch)
        with self._store.transaction() as tx:
            versions = list(tx.versions.list_all(table.table_id, MAIN_BRANCH))
        if order is Order.DESCENDING:
            versions.reverse()
        if page.after is not None:
            last = _version_token(page.after)
            versions = [
                v for v in versions if (v.version < last if order is Order.DESCENDING else v.version > last)
            ]
        found: list[TableVersion] = []
        for version in versions:
            if page.limit is not None and len(found) >= page.limit:
                break
            if (readable := self._readable(table, version)) is not None:
                found.append(readable)
        return found

    def describe(self, caller: Caller, ident: TableIdent, branch: str, version: int | None) -> TableVersion:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self._table(ident, branch)
        if version is None:
            return self.get_latest(table)
        found = self.find(table, version)
        if found is None:
            raise TableVersionNotFound(ident, version)
        return found

    def find(self, table: Table, version: int) -> TableVersion | None:
        with self._store.transaction() as tx:
            found = tx.versions.find(table.table_id, MAIN_BRANCH, version)
        return None if found is None else self._readable(table, found)

    def find_latest(self, table: Table) -> TableVersion | None:
        """The newest version that can be read; None while the table is only declared."""
        with self._store.transaction() as tx:
            latest = tx.versions.find_latest(table.table_id, MAIN_BRANCH)
        if latest is None:
            return None
        if (readable := self._readable(table, latest)) is not None:
            return readable
        with self._store.transaction() as tx:
            older = tx.versions.list_all(table.table_id, MAIN_BRANCH)
        candidates = (self._readable(table, version) for version in reversed(older))
        return next((version for version in candidates if version is not None), None)

    def get_latest(self, table: Table) -> TableVersion:
        latest = self.find_latest(table)
        if latest is None:
            raise TableHasNoData(table.ident)
        return latest

    def _table(self, ident: TableIdent, branch: str) -> Table:
        with self._store.transaction() as tx:
            table = tx.tables.get(ident)
        if branch != MAIN_BRANCH:
            raise BranchNotFound(ident, branch)
        return table

    def _check_path(self, table: Table, entry: VersionEntry) -> None:
        directory, _, name = entry.manifest_path.rpartition("/")
        if directory != self._versions_key(table) or not STAGED_NAME.fullmatch(name):
            raise InvalidInput(
                "manifest_path",
                f"{entry.manifest_path!r} is not a staged manifest of this table; "
                f"it has to be {self._versions_key(table)}/<number>.manifest-<uuid>",
            )
        if entry.naming_scheme not in NAMING_SCHEMES:
            raise InvalidInput("naming_scheme", f"{entry.naming_scheme!r} is neither 'V1' nor 'V2'")

    def _check_manifest(self, entry: VersionEntry, size: int | None) -> int:
        if size is None:
            raise InvalidInput("manifest_path", f"there is no object at {entry.manifest_path}")
        if entry.manifest_size is not None and entry.manifest_size != size:
            raise InvalidInput("manifest_size", f"is {entry.manifest_size}, but the object has {size} bytes")
        if not len(MANIFEST_MAGIC) < size <= MAX_MANIFEST_BYTES:
            raise InvalidInput("manifest_path", f"an object of {size} bytes is not a Lance manifest")
        if self._files.read_tail(entry.manifest_path, len(MANIFEST_MAGIC)) != MANIFEST_MAGIC:
            raise InvalidInput("manifest_path", "the object is not a Lance manifest")
        return size

    def _replay(self, table: Table, existing: TableVersion, entry: VersionEntry) -> TableVersion:
        """The same request again gets the same answer; another writer's version is a conflict."""
        promoted = self._promote(table, existing, entry.naming_scheme)
        is_same = existing.staged_path == entry.manifest_path or self._files.is_same(
            entry.manifest_path, promoted.manifest_path
        )
        if not is_same:
            raise TableVersionAlreadyExists(table.ident, entry.version)
        return promoted

    def _readable(self, table: Table, version: TableVersion) -> TableVersion | None:
        """Clients delete old manifests without telling us; a crash may have left one unpromoted."""
        if version.manifest_path == version.staged_path:
            version = self._promote(table, version, _scheme_of(version))
        return version if self._files.size_of(version.manifest_path) is not None else None

    def _promote(self, table: Table, version: TableVersion, scheme: str) -> TableVersion:
        """Copies the staged manifest to its final name; until that works, readers use the staged one."""
        if version.manifest_path != version.staged_path:
            return version
        final = f"{self._versions_key(table)}/{manifest_name(version.version, scheme)}"
        try:
            self._files.copy_if_absent(version.staged_path, final)
            with self._store.transaction() as tx:
                tx.versions.set_manifest_path(version, final)
            self._files.remove(version.staged_path)
        except (OSError, Unavailable):
            return version
        return replace(version, manifest_path=final)

    def _versions_key(self, table: Table) -> str:
        return f"{self._files.key_of(table.location)}/_versions"


def manifest_name(version: int, scheme: str) -> str:
    return f"{version}.manifest" if scheme == "V1" else f"{MAX_U64 - version:020}.manifest"


def _scheme_of(version: TableVersion) -> str:
    """A writer names the staged manifest like the final one, so its number tells the scheme."""
    number = version.staged_path.rpartition("/")[2].partition(".")[0]
    return "V1" if int(number) == version.version else "V2"


def _check_follows(ident: TableIdent, latest: TableVersion | None, version: int) -> None:
    expected = 1 if latest is None else latest.version + 1
    if version < expected:
        raise TableVersionAlreadyExists(ident, version)
    if version > expected:
        raise InvalidInput("version", f"is {version}, but the next version of {ident} is {expected}")


def _version_token(token: str) -> int:
    if not token.isdecimal():
        raise InvalidInput("page_token", f"{token!r} is not a token of a version listing")
    return int(token)
