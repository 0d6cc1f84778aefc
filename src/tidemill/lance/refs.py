"""Tags and branches. Both are files beside a table's data, which clients also write directly.

`RefOperations` is what callers can do; `LanceTableRefs` does it through pylance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import lance

from tidemill.catalog.errors import (
    BranchAlreadyExists,
    BranchNotFound,
    InvalidTableState,
    TableTagAlreadyExists,
    TableTagNotFound,
)
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.catalog.ports import Authorizer, CatalogStore, CatalogTransaction
from tidemill.errors import InvalidInput, Unavailable
from tidemill.lance.datasets import CommittingNamespace, backoff, translated
from tidemill.lance.model.tables import Branch, Tag, check_branch_name, check_tag_name
from tidemill.lance.versions.commit import VersionOperations

REF_ATTEMPTS: Final = 20
MISSING_REFERENCE: Final = re.compile(r"not found: \S*/_refs/", re.IGNORECASE)


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
        self._remove_dangling_reference(parent.on(name))

    def _remove_dangling_reference(self, branch: Table) -> None:
        """Undoes the second half of a creation if the branch was deleted after the first one."""
        if self._versions.find_latest(branch) is not None:
            return
        main = branch.on(MAIN_BRANCH)
        with self._locked(main) as tx:
            is_gone = tx.versions.find_latest(branch.table_id, branch.branch) is None
            if is_gone and branch.branch in self._refs.list_branches(main):
                self._refs.delete_branch(main, branch.branch)

    def delete_branch(self, caller: Caller, ident: TableIdent, name: str) -> None:
        """Deletes a branch, even one without a reference, as a crash during its creation leaves it."""
        self._authorizer.require(caller, Permission.WRITE, ident)
        if name == MAIN_BRANCH:
            raise InvalidInput("name", "is the branch main, which cannot be deleted; drop the table instead")
        check_branch_name(name, "name")
        table = self._main(ident)
        self._versions.get_branch(ident, name)
        with self._locked(table) as tx:
            if name in self._refs.list_branches(table):
                self._refs.delete_branch(table, name)
                tx.versions.remove_branch(table.table_id, name)
                return
            left = tx.versions.list_all(table.table_id, name)
            if not left:
                raise BranchNotFound(ident, name)
            tx.versions.forget_results(table.table_id, name, left[0].version)
            for version in left:
                tx.versions.mark_deleted(version)
        self._versions.remove_deleted(left)

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


class LanceTableRefs:
    """Reads and writes references without using the database, so it may be called within a transaction.

    Creating a branch is the exception, because it is a commit. Versions are those of `table.branch`.
    """

    def __init__(self, versions: VersionOperations) -> None:
        self._versions = versions

    def list_tags(self, table: Table) -> Mapping[str, Tag]:
        dataset = _open(table)
        if dataset is None:
            return {}
        with translated(table.ident, field="tag"):
            tags = _while_refs_change(table, dataset.tags.list)
        return {
            name: Tag(name, ref["version"], ref["manifest_size"] or 0, ref.get("branch") or MAIN_BRANCH)
            for name, ref in sorted(tags.items())
        }

    def create_tag(self, table: Table, name: str, version: int) -> None:
        with translated(table.ident, field="tag"):
            _get(table).tags.create(name, _reference(table, version))

    def update_tag(self, table: Table, name: str, version: int) -> None:
        with translated(table.ident, field="tag"):
            _get(table).tags.update(name, _reference(table, version))

    def delete_tag(self, table: Table, name: str) -> None:
        with translated(table.ident, field="tag"):
            _get(table).tags.delete(name)

    def list_branches(self, table: Table) -> Mapping[str, Branch]:
        dataset = _open(table)
        if dataset is None:
            return {}
        with translated(table.ident, field="branch"):
            branches = _while_refs_change(table, dataset.branches.list)
        return {name: _branch(name, ref) for name, ref in sorted(branches.items())}

    def create_branch(self, table: Table, name: str, version: int) -> None:
        """Commits the first version of the branch. Do not call it in a transaction."""
        namespace = CommittingNamespace(self._versions, table.on(MAIN_BRANCH))
        with translated(table.ident, namespace, field="name"):
            root = namespace.open()
            root.create_branch(name, _reference(table, version))

    def delete_branch(self, table: Table, name: str) -> None:
        """Also removes its files; raises InvalidTableState if other branches start from it."""
        try:
            with translated(table.ident, field="name"):
                dataset = _get(table)
                _while_refs_change(table, lambda: dataset.branches.delete(name))
        except OSError as error:
            if "is referenced by" in str(error):
                raise InvalidTableState(
                    table.ident, f"branch '{name}' has branches of its own; delete those first"
                ) from error
            raise


def _while_refs_change(table: Table, call: Callable[[], Any]) -> Any:
    """Calls pylance again if a reference that it listed was deleted before it could be read.

    Clients delete references without asking us, and pylance reads all of them, even to delete a branch.
    """
    for attempt in range(REF_ATTEMPTS):
        try:
            return call()
        except (ValueError, OSError) as error:
            if MISSING_REFERENCE.search(str(error)) is None:
                raise
            backoff(attempt)
    raise Unavailable(f"The tags and branches of {table.ident} keep changing; try again")


def _open(table: Table) -> lance.LanceDataset | None:
    """Opens any version, since references do not belong to one; None if there is no data."""
    try:
        return lance.dataset(table.location)
    except ValueError:
        return None


def _get(table: Table) -> lance.LanceDataset:
    return lance.dataset(table.location)


def _reference(table: Table, version: int) -> int | tuple[str, int]:
    return version if table.branch == MAIN_BRANCH else (table.branch, version)


def _branch(name: str, ref: Mapping[str, Any]) -> Branch:
    return Branch(
        name=name,
        parent_branch=ref.get("parent_branch") or MAIN_BRANCH,
        parent_version=ref["parent_version"],
        created_at=datetime.fromtimestamp(ref["create_at"], UTC),
        manifest_size=ref["manifest_size"] or 0,
        metadata=ref.get("metadata") or {},
    )
