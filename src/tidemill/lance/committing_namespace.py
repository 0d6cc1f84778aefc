"""The catalog as pylance sees it when we write: commits become version rows, in process."""

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
from tidemill.catalog.model.locations import is_below, normalized_location
from tidemill.catalog.model.tables import Table, TableVersion, VersionEntry
from tidemill.catalog.operations.versions import VersionOperations
from tidemill.catalog.ports import TransactionEffect
from tidemill.errors import TidemillError


def check_bases(table: Table, dataset: lance.LanceDataset) -> None:
    """A manifest that somebody put into the table's directory may lead anywhere, and we would go there."""
    for base in dataset.base_paths().values():
        place = normalized_location(base.path, "")
        if place != table.location and not is_below(place, f"{table.location}/tree"):
            raise InvalidTableState(table.ident, f"reads from {base.path:.200}, which this table may not")


class CommittingNamespace(LanceNamespace):
    """One table on one branch, for one write: pylance commits through the same code as `version/create`.

    pylance turns whatever a commit raises into words; `failure` keeps the error itself. `lost_race` says that
    the last commit came too late: nothing of it is there, even where pylance calls its outcome unknown.
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
        """To be written to; the newest version if none is given."""
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
        latest = self._versions.find_latest(self._asked(_fields(request)))
        return ListTableVersionsResponse(versions=[] if latest is None else [_wire(latest)])

    def describe_table_version(self, request: Any) -> DescribeTableVersionResponse:
        fields = _fields(request)
        table, number = self._asked(fields), fields.get("version")
        found = (
            self._versions.find_latest(table) if number is None else self._versions.find(table, int(number))
        )
        if found is None:
            raise TableVersionNotFoundError(f"there is no version {number}")
        return DescribeTableVersionResponse(version=_wire(found))

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
            version = self._versions.commit(self._asked(fields), entry, self._on_commit)
        except TableVersionAlreadyExists as error:
            self.lost_race = True
            raise ConcurrentModificationError(str(error)) from error
        except TidemillError as error:
            self.failure = error
            raise
        return CreateTableVersionResponse(version=_wire(version))

    def _asked(self, fields: Mapping[str, Any]) -> Table:
        """pylance names a branch when it leaves the one it has opened."""
        branch = fields.get("branch")
        return self._table if branch is None else self._table.on(str(branch))


def _wire(version: TableVersion) -> WireVersion:
    return WireVersion(
        version=version.version,
        manifest_path=version.manifest_path,
        manifest_size=version.manifest_size,
        e_tag=version.e_tag,
    )


def _fields(request: Any) -> Mapping[str, Any]:
    """pylance hands a dict, the generated client a model."""
    return request if isinstance(request, Mapping) else request.model_dump()
