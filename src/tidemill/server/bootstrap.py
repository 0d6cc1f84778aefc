"""Wiring: which adapter stands behind which port."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.operations.functions import FunctionOperations
from tidemill.catalog.operations.namespaces import NamespaceOperations
from tidemill.catalog.operations.rows import RowOperations
from tidemill.catalog.operations.tables import TableOperations
from tidemill.catalog.operations.versions import VersionOperations
from tidemill.jobs.operations.assess import Assessor
from tidemill.jobs.operations.columns import ColumnOperations
from tidemill.jobs.operations.explain import Explainer
from tidemill.jobs.operations.submissions import JobOperations
from tidemill.jobs.operations.views import ViewOperations
from tidemill.lance.data import LanceTableData
from tidemill.lance.sources import LanceSourceTables
from tidemill.protocols.http.operations import Operations
from tidemill.server.health import ServerHealth, WorkerLiveness
from tidemill.server.settings import ServerSettings
from tidemill.storage.local import LocalTableFiles
from tidemill.store.engine import SqlStore, open_store


class AllowEverything:
    """The embedded mode's authorizer: whoever reaches the loopback port is the owner."""

    def require(self, caller: Caller, permission: Permission, resource: NamespacePath | TableIdent) -> None:
        return None


@dataclass(frozen=True)
class Lake:
    """The adapters that server and worker share."""

    store: SqlStore
    files: LocalTableFiles
    versions: VersionOperations
    data: LanceTableData
    sources: LanceSourceTables
    assessor: Assessor
    authorizer: AllowEverything


def open_lake(settings: ServerSettings) -> Lake:
    settings.root.mkdir(parents=True, exist_ok=True)
    store = open_store(settings.database)
    files = LocalTableFiles(settings.warehouse)
    authorizer = AllowEverything()
    versions = VersionOperations(store, authorizer, files)
    data = LanceTableData(versions)
    sources = LanceSourceTables(data)
    return Lake(store, files, versions, data, sources, Assessor(store, sources), authorizer)


def build_operations(lake: Lake, worker: WorkerLiveness, bell: Callable[[], None]) -> Operations:
    """`bell` is rung when a job has been submitted."""
    store, authorizer = lake.store, lake.authorizer
    jobs = JobOperations(store, authorizer, lake.versions, lake.sources, lake.assessor, bell)
    return Operations(
        namespaces=NamespaceOperations(store, authorizer, lake.files),
        tables=TableOperations(store, authorizer, lake.files, lake.data, lake.versions),
        rows=RowOperations(store, authorizer, lake.data, lake.versions),
        versions=lake.versions,
        functions=FunctionOperations(store, authorizer),
        columns=ColumnOperations(store, authorizer, lake.data),
        views=ViewOperations(store, authorizer, lake.files, lake.data, lake.sources, jobs),
        jobs=jobs,
        explain=Explainer(store, authorizer, lake.assessor),
        health=ServerHealth(store, lake.files, worker),
    )
