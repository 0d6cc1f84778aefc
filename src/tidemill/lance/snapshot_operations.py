"""Operations on a whole version of a table: restore, statistics, schema metadata."""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.catalog.errors import InvalidTableState
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import TableKind
from tidemill.catalog.ports import Authorizer
from tidemill.lance.datasets import LanceTableData
from tidemill.lance.model.tables import TableStatistics
from tidemill.lance.snapshots import LanceTableSnapshots
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
        self._authorizer.require(caller, Permission.WRITE, ident)
        table = self._versions.get_branch(ident, branch)
        self._versions.get_latest(table)
        return self._snapshots.replace_schema_metadata(table, metadata)
