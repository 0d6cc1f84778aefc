"""Tags and branches, which Lance stores beside a table's data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import lance

from tidemill.catalog.errors import InvalidTableState
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.lance.committing_namespace import CommittingNamespace
from tidemill.lance.datasets import translated
from tidemill.lance.model.refs import Branch, Tag
from tidemill.lance.versions.commit import VersionOperations


class LanceTableRefs:
    """Reads and writes references without using the database, so it may be called within a transaction.

    Creating a branch is the exception, because it is a commit.
    """

    def __init__(self, versions: VersionOperations) -> None:
        self._versions = versions

    def list_tags(self, table: Table) -> Mapping[str, Tag]:
        dataset = _open(table)
        if dataset is None:
            return {}
        with translated(table.ident, field="tag"):
            tags: dict[str, Any] = dataset.tags.list()
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
            branches: dict[str, Any] = dataset.branches.list()
        return {name: _branch(name, ref) for name, ref in sorted(branches.items())}

    def create_branch(self, table: Table, name: str, version: int) -> None:
        namespace = CommittingNamespace(self._versions, table.on(MAIN_BRANCH))
        with translated(table.ident, namespace, field="name"):
            root = namespace.open()
            root.create_branch(name, _reference(table, version))

    def delete_branch(self, table: Table, name: str) -> None:
        try:
            with translated(table.ident, field="name"):
                _get(table).branches.delete(name)
        except OSError as error:
            if "is referenced by" in str(error):
                raise InvalidTableState(
                    table.ident, f"branch '{name}' has branches of its own; delete those first"
                ) from error
            raise


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
