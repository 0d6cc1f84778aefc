"""The namespace through which pylance commits into the catalog, in process.

pylance can delegate versioning to a namespace: it asks for the latest version, writes a staged manifest and
calls `create_table_version`. Remote clients do that over HTTP. Our own writes (inserts, edits, indexes,
published jobs) pass a `CommittingNamespace` instead, so they take the same path as `version/create` and end
in the same transaction with the effects in `on_commit`. The call goes in a circle: an operation calls
pylance, and pylance calls back into `VersionOperations.commit`.

A commit that bypassed the namespace would create a manifest that the catalog only discovers later, without
its lease check, ledger entry or coverage.

pylance turns exceptions of the callback into strings, and it reports some lost races as an unknown outcome.
The namespace therefore remembers both the original error and whether the race was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lance
from lance_namespace import (
    ConcurrentModificationError,
    CreateTableVersionResponse,
    DeclareTableResponse,
    DescribeTableResponse,
    DescribeTableVersionResponse,
    LanceNamespace,
    ListTableVersionsResponse,
)
from lance_namespace import TableVersion as WireVersion
from lance_namespace.errors import TableVersionNotFoundError

from tidemill.catalog.errors import InvalidTableState, TableVersionAlreadyExists
from tidemill.catalog.locations import is_below, normalized_location
from tidemill.catalog.model.tables import Table, TableVersion, VersionEntry
from tidemill.errors import TidemillError
from tidemill.jobs.ports import TransactionEffect
from tidemill.lance.versions.commit import VersionOperations


def check_bases(table: Table, dataset: lance.LanceDataset) -> None:
    """Rejects base paths outside the table: a forged manifest could make the server read other locations.

    Raises InvalidTableState.
    """
    for base in dataset.base_paths().values():
        location = normalized_location(base.path, "")
        if location != table.location and not is_below(location, f"{table.location}/tree"):
            raise InvalidTableState(
                table.ident, f"reads from {base.path:.200}, which this table may not access"
            )


class CommittingNamespace(LanceNamespace):
    """One table on one branch, for one write.

    `failure` is the error that the commit raised. `lost_race` means that another writer took the version:
    nothing was committed, even if pylance calls the outcome unknown.
    """

    def __init__(
        self, versions: VersionOperations, table: Table, on_commit: TransactionEffect | None = None
    ) -> None:
        self._versions = versions
        self._table = table
        self._on_commit = on_commit
        self.failure: TidemillError | None = None
        self.lost_race = False

    @property
    def table_id(self) -> list[str]:
        return [str(self._table.table_id)]

    def open(self, version: int | None = None) -> lance.LanceDataset:
        """Opens the table for writing, by default at the newest version."""
        opened = lance.dataset(namespace_client=self, table_id=self.table_id, version=version)
        check_bases(self._table, opened)
        return opened

    def namespace_id(self) -> str:
        return f"tidemill:{self._table.table_id}:{self._table.branch}"

    def declare_table(self, request: Any) -> DeclareTableResponse:
        return DeclareTableResponse(location=self._table.data_location, managed_versioning=True)

    def describe_table(self, request: Any) -> DescribeTableResponse:
        return DescribeTableResponse(location=self._table.data_location, managed_versioning=True)

    def list_table_versions(self, request: Any) -> ListTableVersionsResponse:
        latest = self._versions.find_latest(self._requested_table(_fields(request)))
        return ListTableVersionsResponse(versions=[] if latest is None else [_to_wire(latest)])

    def describe_table_version(self, request: Any) -> DescribeTableVersionResponse:
        fields = _fields(request)
        table, number = self._requested_table(fields), fields.get("version")
        version = (
            self._versions.find_latest(table) if number is None else self._versions.find(table, int(number))
        )
        if version is None:
            raise TableVersionNotFoundError(f"there is no version {number}")
        return DescribeTableVersionResponse(version=_to_wire(version))

    def create_table_version(self, request: Any) -> CreateTableVersionResponse:
        fields = _fields(request)
        entry = VersionEntry(
            version=int(fields["version"]),
            manifest_path=str(fields["manifest_path"]),
            manifest_size=fields.get("manifest_size"),
            e_tag=fields.get("e_tag"),
            naming_scheme=fields.get("naming_scheme") or "V2",
        )
        self.lost_race = False
        try:
            version = self._versions.commit(self._requested_table(fields), entry, self._on_commit)
        except TableVersionAlreadyExists as error:
            self.lost_race = True
            raise ConcurrentModificationError(str(error)) from error
        except TidemillError as error:
            self.failure = error
            raise
        return CreateTableVersionResponse(version=_to_wire(version))

    def _requested_table(self, fields: Mapping[str, Any]) -> Table:
        """The table on the requested branch; pylance names it only if it differs from the opened one."""
        branch = fields.get("branch")
        return self._table if branch is None else self._table.on(str(branch))


def _to_wire(version: TableVersion) -> WireVersion:
    return WireVersion(
        version=version.version,
        manifest_path=version.manifest_path,
        manifest_size=version.manifest_size,
        e_tag=version.e_tag,
    )


def _fields(request: Any) -> Mapping[str, Any]:
    """pylance passes a dict, the generated client a model."""
    return request if isinstance(request, Mapping) else request.model_dump()
