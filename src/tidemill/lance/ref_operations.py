"""Operations on tags and branches. Both are files in storage, which clients also write directly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tidemill.catalog.errors import (
    BranchAlreadyExists,
    BranchNotFound,
    TableTagAlreadyExists,
    TableTagNotFound,
)
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.catalog.ports import Authorizer, CatalogStore, CatalogTransaction
from tidemill.errors import InvalidInput
from tidemill.lance.model.refs import Branch, Tag, check_branch_name, check_tag_name
from tidemill.lance.refs import LanceTableRefs
from tidemill.lance.versions.commit import VersionOperations


class RefOperations:
    def __init__(self, store: CatalogStore, authorizer: Authorizer, versions: VersionOperations) -> None:
        self._store = store
        self._authorizer = authorizer
        self._versions = versions
        self._refs = LanceTableRefs(versions)

    def list_tags(self, caller: Caller, ident: TableIdent) -> Mapping[str, Tag]:
        self._authorizer.require(caller, Permission.READ, ident)
        return self._tags(ident)

    def get_tag(self, caller: Caller, ident: TableIdent, name: str) -> Tag:
        self._authorizer.require(caller, Permission.READ, ident)
        check_tag_name(name)
        tag = self._tags(ident).get(name)
        if tag is None:
            raise TableTagNotFound(ident, name)
        return tag

    def create_tag(self, caller: Caller, ident: TableIdent, name: str, branch: str, version: int) -> None:
        self._authorizer.require(caller, Permission.WRITE, ident)
        check_tag_name(name)
        table = self._branch_with_version(ident, branch, version)
        with self._locked(table):
            if name in self._refs.list_tags(table.on(MAIN_BRANCH)):
                raise TableTagAlreadyExists(ident, name)
            self._refs.create_tag(table, name, version)

    def update_tag(self, caller: Caller, ident: TableIdent, name: str, branch: str, version: int) -> None:
        self._authorizer.require(caller, Permission.WRITE, ident)
        check_tag_name(name)
        table = self._branch_with_version(ident, branch, version)
        with self._locked(table):
            if name not in self._refs.list_tags(table.on(MAIN_BRANCH)):
                raise TableTagNotFound(ident, name)
            self._refs.update_tag(table, name, version)

    def delete_tag(self, caller: Caller, ident: TableIdent, name: str) -> None:
        self._authorizer.require(caller, Permission.WRITE, ident)
        check_tag_name(name)
        table = self._main(ident)
        with self._locked(table):
            if name not in self._refs.list_tags(table):
                raise TableTagNotFound(ident, name)
            self._refs.delete_tag(table, name)

    def list_branches(self, caller: Caller, ident: TableIdent) -> Mapping[str, Branch]:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self._main(ident)
        return {} if self._versions.find_latest(table) is None else self._refs.list_branches(table)

    def create_branch(
        self, caller: Caller, ident: TableIdent, name: str, from_branch: str, from_version: int | None
    ) -> None:
        """Without a version, the branch starts at the latest version of `from_branch`."""
        self._authorizer.require(caller, Permission.WRITE, ident)
        check_branch_name(name, "name")
        if name == MAIN_BRANCH:
            raise BranchAlreadyExists(ident, name)
        parent = self._versions.get_branch(ident, from_branch)
        start = (
            self._versions.get_latest(parent)
            if from_version is None
            else self._versions.get(parent, from_version)
        )
        if name in self._refs.list_branches(parent.on(MAIN_BRANCH)):
            raise BranchAlreadyExists(ident, name)
        # Versions are left of a branch whose reference is gone.
        if self._versions.find_latest(parent.on(name)) is not None:
            raise BranchAlreadyExists(ident, name)
        self._refs.create_branch(parent, name, start.version)

    def delete_branch(self, caller: Caller, ident: TableIdent, name: str) -> None:
        self._authorizer.require(caller, Permission.WRITE, ident)
        if name == MAIN_BRANCH:
            raise InvalidInput("name", "is the branch main, which cannot be deleted; drop the table instead")
        check_branch_name(name, "name")
        table = self._main(ident)
        with self._locked(table) as tx:
            if name not in self._refs.list_branches(table):
                raise BranchNotFound(ident, name)
            self._refs.delete_branch(table, name)
            tx.versions.remove_branch(table.table_id, name)

    def _tags(self, ident: TableIdent) -> Mapping[str, Tag]:
        table = self._main(ident)
        tags = self._refs.list_tags(table)
        if not tags:
            # There are no tags, or storage is unreachable; the latter raises here.
            self._versions.find_latest(table)
        return tags

    def _main(self, ident: TableIdent) -> Table:
        return self._versions.get_branch(ident, MAIN_BRANCH)

    def _branch_with_version(self, ident: TableIdent, branch: str, version: int) -> Table:
        table = self._versions.get_branch(ident, branch)
        self._versions.get(table, version)
        return table

    @contextmanager
    def _locked(self, table: Table) -> Iterator[CatalogTransaction]:
        """Locks the table: references are files that are read and then written, by one server at a time."""
        with self._store.transaction() as tx:
            tx.tables.lock(table)
            yield tx
