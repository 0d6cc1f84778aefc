"""Wiring: which adapter stands behind which port."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from tidemill.catalog.operations.batches import BatchOperations
from tidemill.catalog.operations.functions import FunctionOperations
from tidemill.catalog.operations.namespaces import NamespaceOperations
from tidemill.catalog.operations.receipts import ReceiptOperations
from tidemill.catalog.operations.refs import RefOperations
from tidemill.catalog.operations.registrations import RegistrationOperations
from tidemill.catalog.operations.rows import RowOperations
from tidemill.catalog.operations.schemas import SchemaOperations
from tidemill.catalog.operations.secrets import SecretOperations
from tidemill.catalog.operations.snapshots import SnapshotOperations
from tidemill.catalog.operations.stored_queries import StoredQueryOperations
from tidemill.catalog.operations.tables import TableOperations
from tidemill.catalog.operations.transactions import TransactionOperations
from tidemill.catalog.operations.versions import VersionOperations
from tidemill.catalog.ports import Authorizer
from tidemill.catalog.signing_ports import RequestSigner
from tidemill.jobs.model.clusters import Clusters
from tidemill.jobs.operations.assess import Assessor
from tidemill.jobs.operations.assess_views import ViewAssessor
from tidemill.jobs.operations.columns import ColumnOperations
from tidemill.jobs.operations.environments import EnvironmentOperations
from tidemill.jobs.operations.explain import Explainer
from tidemill.jobs.operations.indexing import IndexOperations
from tidemill.jobs.operations.lineage import Lineage
from tidemill.jobs.operations.provenance import ColumnProvenance
from tidemill.jobs.operations.submissions import JobOperations
from tidemill.jobs.operations.transactions import JobTransactions
from tidemill.jobs.operations.view_status import ViewStatusOperations
from tidemill.jobs.operations.views import ViewOperations
from tidemill.lance.data import LanceTableData
from tidemill.lance.edits import LanceTableEdits
from tidemill.lance.indexes import LanceTableIndexes
from tidemill.lance.manifests import check_staged
from tidemill.lance.queries import LanceTableQueries
from tidemill.lance.refs import LanceTableRefs
from tidemill.lance.schemas import LanceTableSchemas
from tidemill.lance.snapshots import LanceTableSnapshots
from tidemill.lance.sources import LanceSourceTables
from tidemill.lance.storable import LanceColumnTypes
from tidemill.lance.transactions import LanceCommitHistory
from tidemill.protocols.http.operations import Operations
from tidemill.server.authentication import Authentication, open_authentication
from tidemill.server.grants import AllowEverything, GrantAuthorizer
from tidemill.server.health import ServerHealth, WorkerLiveness
from tidemill.server.iceberg import build_iceberg
from tidemill.server.secret_key import InstallationCipher
from tidemill.server.settings import ServerSettings
from tidemill.server.warehouse import open_signer, open_warehouse
from tidemill.storage.warehouse import Warehouse
from tidemill.store.engine import SqlStore, open_store


@dataclass(frozen=True)
class Lake:
    """The adapters that server and worker share."""

    store: SqlStore
    files: Warehouse
    versions: VersionOperations
    data: LanceTableData
    sources: LanceSourceTables
    assessor: Assessor
    view_assessor: ViewAssessor
    authorizer: Authorizer
    authentication: Authentication
    cipher: InstallationCipher
    clusters: Clusters
    signer: RequestSigner | None
    warehouse_name: str
    idempotency_lifetime: timedelta


def open_lake(settings: ServerSettings, authorizer: Authorizer | None = None) -> Lake:
    """Callers are judged by the grants of the settings, unless another judge is given."""
    settings.root.mkdir(parents=True, exist_ok=True)
    store = open_store(settings.database)
    files = open_warehouse(settings)
    authorizer, cipher = authorizer or _authorizer(settings), InstallationCipher(settings)
    versions = VersionOperations(store, authorizer, files, check_staged)
    data = LanceTableData(versions)
    sources = LanceSourceTables(data)
    return Lake(
        store=store,
        files=files,
        versions=versions,
        data=data,
        sources=sources,
        assessor=Assessor(store, sources),
        view_assessor=ViewAssessor(store, sources),
        authorizer=authorizer,
        authentication=open_authentication(settings, cipher),
        cipher=cipher,
        clusters=settings.clusters(),
        signer=open_signer(settings),
        warehouse_name=settings.warehouse_name,
        idempotency_lifetime=timedelta(seconds=settings.idempotency_lifetime_seconds),
    )


def _authorizer(settings: ServerSettings) -> Authorizer:
    if not settings.clients:
        return AllowEverything()
    return GrantAuthorizer({name: client.permissions() for name, client in settings.clients.items()})


def build_jobs(lake: Lake, bell: Callable[[], None]) -> JobOperations:
    return JobOperations(
        lake.store,
        lake.authorizer,
        lake.versions,
        lake.sources,
        lake.assessor,
        lake.view_assessor,
        lake.clusters,
        EnvironmentOperations(lake.store, lake.authorizer),
        bell,
    )


def build_operations(lake: Lake, worker: WorkerLiveness, bell: Callable[[], None]) -> Operations:
    """`bell` is rung when a job has been submitted."""
    store, authorizer = lake.store, lake.authorizer
    jobs = build_jobs(lake, bell)
    environments = EnvironmentOperations(store, authorizer)
    refs = LanceTableRefs(lake.versions)
    references = RefOperations(store, authorizer, lake.versions, refs)
    snapshots = LanceTableSnapshots(lake.versions, lake.data)
    types = LanceColumnTypes(lake.data)
    columns = ColumnOperations(store, authorizer, lake.files, lake.data, lake.sources, types)
    iceberg = build_iceberg(store, lake.files, authorizer, lake.signer)
    return Operations(
        namespaces=NamespaceOperations(store, authorizer, lake.files),
        tables=TableOperations(
            store, authorizer, lake.files, lake.data, snapshots, lake.versions, references
        ),
        registrations=RegistrationOperations(store, authorizer, lake.files, check_staged, lake.versions),
        snapshots=SnapshotOperations(authorizer, lake.versions, snapshots),
        rows=RowOperations(
            store,
            authorizer,
            lake.data,
            LanceTableQueries(lake.data),
            LanceTableEdits(lake.data),
            lake.versions,
        ),
        versions=lake.versions,
        refs=references,
        batches=BatchOperations(store, authorizer, lake.files, lake.versions, refs),
        functions=FunctionOperations(store, authorizer),
        schemas=SchemaOperations(authorizer, lake.versions, LanceTableSchemas(lake.versions), columns),
        indexes=IndexOperations(
            store, authorizer, lake.versions, LanceTableIndexes(lake.versions, lake.data), jobs
        ),
        transactions=TransactionOperations(
            store,
            authorizer,
            lake.versions,
            LanceCommitHistory(lake.data),
            JobTransactions(store, authorizer),
        ),
        columns=columns,
        views=ViewOperations(store, authorizer, lake.files, lake.data, lake.sources, jobs),
        jobs=jobs,
        secrets=SecretOperations(store, authorizer, lake.cipher),
        stored_queries=StoredQueryOperations(store, authorizer, lake.files),
        explain=Explainer(
            store,
            authorizer,
            lake.versions,
            lake.assessor,
            lake.view_assessor,
            lake.clusters,
            environments,
        ),
        provenance=ColumnProvenance(store, authorizer, lake.versions, lake.assessor),
        lineage=Lineage(store, authorizer, lake.versions, lake.sources),
        view_status=ViewStatusOperations(store, authorizer, lake.versions, lake.view_assessor),
        environments=environments,
        iceberg_tables=iceberg.tables,
        iceberg_commits=iceberg.commits,
        iceberg_views=iceberg.views,
        iceberg_access=iceberg.access,
        iceberg_signing=iceberg.signing,
        scan_planner=iceberg.planner,
        receipts=ReceiptOperations(store, authorizer, lake.idempotency_lifetime),
        warehouse_name=lake.warehouse_name,
        health=ServerHealth(store, lake.files, worker),
        tokens=lake.authentication,
    )
