"""Single versions of Lance tables: restores and measures them, and replaces their schema metadata.

`SnapshotOperations` is what callers can do; `LanceTableSnapshots` does it through pylance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lance

from tidemill.catalog.errors import InvalidTableState
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Table, TableKind
from tidemill.catalog.ports import Authorizer
from tidemill.lance.committing_namespace import CommittingNamespace
from tidemill.lance.datasets import LanceTableData, translated
from tidemill.lance.model.tables import TableStatistics, TableSummary
from tidemill.lance.versions.commit import VersionOperations


class SnapshotOperations:
    def __init__(self, authorizer: Authorizer, versions: VersionOperations, data: LanceTableData) -> None:
        self._authorizer = authorizer
        self._versions = versions
        self._snapshots = LanceTableSnapshots(versions, data)

    def restore(self, caller: Caller, ident: TableIdent, branch: str, version: int) -> int:
        """Commits a new version with the content of an old one. Versions in between stay in the history."""
        self._authorizer.require(caller, Permission.WRITE, ident)
        table = self._versions.get_branch(ident, branch)
        self._versions.get(table, version)
        if table.kind is TableKind.VIEW:
            raise InvalidTableState(
                ident,
                "is a materialized view and cannot be restored; refresh it with the src_version to show",
            )
        return self._snapshots.restore(table, version)

    def statistics(self, caller: Caller, ident: TableIdent, branch: str) -> TableStatistics:
        self._authorizer.require(caller, Permission.READ, ident)
        table = self._versions.get_branch(ident, branch)
        return self._snapshots.statistics(table, self._versions.get_latest(table).version)

    def replace_schema_metadata(
        self, caller: Caller, ident: TableIdent, branch: str, metadata: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Commits a version whose schema has exactly this metadata; returns the metadata."""
        self._authorizer.require(caller, Permission.WRITE, ident)
        table = self._versions.get_branch(ident, branch)
        self._versions.get_latest(table)
        return self._snapshots.replace_schema_metadata(table, metadata)


class LanceTableSnapshots:
    def __init__(self, versions: VersionOperations, data: LanceTableData) -> None:
        self._versions = versions
        self._data = data

    def restore(self, table: Table, version: int) -> int:
        namespace = CommittingNamespace(self._versions, table)
        with translated(table.ident, namespace):
            dataset = namespace.open(version)
            dataset.restore()
        return int(dataset.version)

    def summary(self, table: Table, version: int) -> TableSummary:
        figures = self._data.open(table, version).stats.dataset_stats()
        return TableSummary(figures["num_deleted_rows"], figures["num_fragments"])

    def statistics(self, table: Table, version: int) -> TableStatistics:
        dataset = self._data.open(table, version)
        with translated(table.ident):
            return TableStatistics(
                rows=dataset.count_rows(),
                bytes_on_disk=_bytes_on_disk(dataset),
                indices=len(dataset.describe_indices()),
                fragment_rows=tuple(sorted(fragment.physical_rows for fragment in dataset.get_fragments())),
            )

    def replace_schema_metadata(self, table: Table, metadata: Mapping[str, str]) -> Mapping[str, str]:
        namespace = CommittingNamespace(self._versions, table)
        with translated(table.ident, namespace, "metadata"):
            dataset = namespace.open()
            dataset.update_schema_metadata(dict(metadata), replace=True)
        stored = dataset.schema.metadata or {}
        return {key.decode(): value.decode() for key, value in stored.items()}


def _bytes_on_disk(dataset: lance.LanceDataset) -> int:
    """The total size of the data files; for old manifests without sizes, the total size of their fields."""
    sizes = [file.file_size_bytes for part in dataset.get_fragments() for file in part.metadata.files]
    if all(size is not None for size in sizes):
        return sum(size or 0 for size in sizes)
    fields: Sequence[Any] = dataset.stats.data_stats().fields  # type: ignore[assignment]  # a list
    return sum(field.bytes_on_disk for field in fields)
