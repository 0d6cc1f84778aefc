"""Wiring of the operations on Iceberg tables and views."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from uuid import UUID

from tidemill.catalog.ports import Authorizer
from tidemill.catalog.signing_ports import RequestSigner
from tidemill.iceberg.files import MetadataFiles
from tidemill.iceberg.operations.access import IcebergAccess
from tidemill.iceberg.operations.commit_engine import Committer
from tidemill.iceberg.operations.locations import EntryLocations
from tidemill.iceberg.operations.purges import Purger
from tidemill.iceberg.operations.signing import RequestSigning
from tidemill.iceberg.operations.table_commits import IcebergCommitOperations
from tidemill.iceberg.operations.tables import IcebergTableOperations
from tidemill.iceberg.operations.views import IcebergViewOperations
from tidemill.iceberg.planning.scans import ScanPlanner
from tidemill.iceberg.reachable_files import ManifestReachableFiles
from tidemill.iceberg.table_io import CatalogFileIO
from tidemill.storage.local import LocalTableFiles
from tidemill.storage.warehouse import Warehouse
from tidemill.store.engine import SqlStore


def _files_of(store: SqlStore, files: Warehouse, table_id: UUID) -> CatalogFileIO:
    def is_foreign(directory: str) -> bool:
        with store.reading() as tx:
            return tx.iceberg.is_in_another(directory, table_id)

    return CatalogFileIO(files, is_foreign)


@dataclass(frozen=True, slots=True)
class IcebergOperations:
    tables: IcebergTableOperations
    commits: IcebergCommitOperations
    views: IcebergViewOperations
    access: IcebergAccess
    signing: RequestSigning
    planner: ScanPlanner


def build_purger(store: SqlStore, files: Warehouse) -> Purger:
    return Purger(store, ManifestReachableFiles(files), MetadataFiles(files))


def build_iceberg(
    store: SqlStore, files: Warehouse, authorizer: Authorizer, signer: RequestSigner | None
) -> IcebergOperations:
    metadata = MetadataFiles(files)
    locations, committer = EntryLocations(files, metadata), Committer(store, metadata)
    tables = IcebergTableOperations(
        store,
        authorizer,
        metadata,
        locations,
        committer,
        build_purger(store, files),
        checks_files=isinstance(files, LocalTableFiles),
    )
    return IcebergOperations(
        tables=tables,
        commits=IcebergCommitOperations(store, authorizer, locations, committer),
        views=IcebergViewOperations(store, authorizer, metadata, locations, committer),
        access=IcebergAccess(store, authorizer, files, locations),
        signing=RequestSigning(authorizer, tables, signer),
        planner=ScanPlanner(partial(_files_of, store, files)),
    )
