"""Wiring: which adapter implements which port, and which warehouse the settings name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

from tidemill.catalog.operations.access import AccessOperations, SettingsAccess
from tidemill.catalog.operations.audit import AuditOperations
from tidemill.catalog.operations.functions import FunctionOperations
from tidemill.catalog.operations.namespaces import NamespaceOperations
from tidemill.catalog.operations.receipts import ReceiptOperations
from tidemill.catalog.operations.secrets import SecretOperations
from tidemill.catalog.ports import Authorizer, RequestSigner
from tidemill.iceberg.files import CatalogFileIO, MetadataFiles
from tidemill.iceberg.operations.access import IcebergAccess, RequestSigning
from tidemill.iceberg.operations.commit_engine import Committer
from tidemill.iceberg.operations.names import EntryLocations
from tidemill.iceberg.operations.purges import ManifestReachableFiles, Purger
from tidemill.iceberg.operations.tables import IcebergTableOperations
from tidemill.iceberg.operations.views import IcebergViewOperations
from tidemill.iceberg.planning.scans import ScanPlanner
from tidemill.jobs.model.jobs import Clusters
from tidemill.jobs.owners import OwnerRights
from tidemill.jobs.planning.bindings import ColumnBindings
from tidemill.jobs.planning.column_progress import Assessor
from tidemill.jobs.service.column_drops import ColumnDrops
from tidemill.jobs.service.columns import ColumnOperations
from tidemill.jobs.service.environments import EnvironmentOperations
from tidemill.jobs.service.explain import Explainer
from tidemill.jobs.service.indexes import IndexOperations
from tidemill.jobs.service.lineage import Lineage
from tidemill.jobs.service.missing_names import NameHints
from tidemill.jobs.service.status import ColumnProvenance, ViewStatusOperations
from tidemill.jobs.service.submissions import JobOperations
from tidemill.jobs.service.views import ViewOperations
from tidemill.jobs.views.progress import ViewAssessor
from tidemill.lance.batches import BatchOperations
from tidemill.lance.datasets import LanceTableData
from tidemill.lance.evaluation.evaluator import Evaluator, InProcess
from tidemill.lance.indexes import LanceTableIndexes
from tidemill.lance.refs import RefOperations
from tidemill.lance.registrations import RegistrationOperations
from tidemill.lance.rows import RowOperations
from tidemill.lance.schemas import SchemaOperations
from tidemill.lance.sources import LanceSourceTables
from tidemill.lance.stored_queries import StoredQueryOperations
from tidemill.lance.tables import SnapshotOperations, TableOperations
from tidemill.lance.transactions import TransactionOperations
from tidemill.lance.versions.commit import VersionOperations
from tidemill.protocols.http.operations import Operations
from tidemill.server.access.authentication import Authentication, open_authentication
from tidemill.server.access.cipher import InstallationCipher
from tidemill.server.access.directory import AccessDirectory
from tidemill.server.access.grants import AllowEverything, GrantAuthorizer
from tidemill.server.access.named_objects import NamingAuthorizer
from tidemill.server.health import ServerHealth, WorkerLiveness
from tidemill.server.settings import ServerSettings
from tidemill.storage.local import LocalTableFiles
from tidemill.storage.s3 import S3TableFiles, parse_prefix
from tidemill.storage.s3_client import (
    ObjectStoreEnvironment,
    missing_variables,
    open_client,
    read_environment,
)
from tidemill.storage.signing import S3RequestSigner, own_keys
from tidemill.storage.vending import AssumedRole, CredentialVendor, NoCredentials, StaticCredentials
from tidemill.storage.warehouse import Warehouse
from tidemill.store.audit import AuditOutput
from tidemill.store.engine import SqlStore, open_store


@dataclass(frozen=True)
class Adapters:
    """The adapters that the server and the worker share.

    Operations ask `authorizer`, which allows a worker everything. `grants` goes by the grants everywhere, for
    workers that act on behalf of somebody.
    """

    store: SqlStore
    files: Warehouse
    versions: VersionOperations
    data: LanceTableData
    sources: LanceSourceTables
    evaluator: Evaluator
    assessor: Assessor
    view_assessor: ViewAssessor
    authorizer: Authorizer
    grants: Authorizer
    directory: AccessDirectory
    settings_access: SettingsAccess
    authentication: Authentication
    cipher: InstallationCipher
    clusters: Clusters
    signer: RequestSigner | None
    warehouse_name: str
    namespace_separator: str
    idempotency_lifetime: timedelta


def open_adapters(
    settings: ServerSettings,
    authorizer: Authorizer | None = None,
    evaluator: Evaluator | None = None,
    store: SqlStore | None = None,
) -> Adapters:
    """Permissions come from the grants in the settings and the catalog, unless an authorizer is given.

    Without an evaluator, expressions are evaluated in this process, without bounds. An open store replaces
    the database in the settings.
    """
    evaluator = evaluator or InProcess()
    settings.root.mkdir(parents=True, exist_ok=True)
    cipher = InstallationCipher(settings)
    audit = AuditOutput(settings.audit_rows, settings.audit_lines)
    store = store or open_store(settings.database, cipher, audit)
    files = open_warehouse(settings)
    access = settings.access()
    directory = AccessDirectory(store, access.grants)
    grants = GrantAuthorizer(directory.current) if access.has_authentication else AllowEverything()
    authorizer = NamingAuthorizer(authorizer or grants)
    versions = VersionOperations(store, authorizer, files)
    data = LanceTableData(versions)
    sources = LanceSourceTables(data, evaluator)
    versions.on_other_fields = ColumnBindings(store, sources).columns_of
    return Adapters(
        store=store,
        files=files,
        versions=versions,
        data=data,
        sources=sources,
        evaluator=evaluator,
        assessor=Assessor(store, sources),
        view_assessor=ViewAssessor(store, sources),
        authorizer=authorizer,
        grants=grants,
        directory=directory,
        settings_access=access,
        authentication=open_authentication(settings, cipher, directory),
        cipher=cipher,
        clusters=settings.clusters(),
        signer=open_signer(settings),
        warehouse_name=settings.warehouse_name,
        namespace_separator=settings.namespace_separator,
        idempotency_lifetime=timedelta(seconds=settings.idempotency_lifetime_seconds),
    )


def build_jobs(adapters: Adapters, wake_worker: Callable[[], None]) -> JobOperations:
    return JobOperations(
        adapters.store,
        adapters.authorizer,
        adapters.versions,
        adapters.sources,
        adapters.assessor,
        adapters.view_assessor,
        adapters.clusters,
        EnvironmentOperations(adapters.store, adapters.authorizer, adapters.cipher),
        wake_worker,
    )


def build_operations(
    adapters: Adapters, worker: WorkerLiveness, wake_worker: Callable[[], None]
) -> Operations:
    """`wake_worker` is called after a job has been submitted."""
    store, authorizer = adapters.store, adapters.authorizer
    jobs = build_jobs(adapters, wake_worker)
    environments = EnvironmentOperations(store, authorizer, adapters.cipher)
    files, data, versions = adapters.files, adapters.data, adapters.versions
    refs = RefOperations(store, authorizer, versions)
    columns = ColumnOperations(store, authorizer, files, data, adapters.sources)
    drops = ColumnDrops(store, authorizer, files, adapters.sources)
    iceberg = build_iceberg(store, files, authorizer, adapters.signer)
    owners = OwnerRights(store, authorizer)
    return Operations(
        namespaces=NamespaceOperations(store, authorizer, files),
        tables=TableOperations(store, authorizer, files, data, versions, refs),
        registrations=RegistrationOperations(store, authorizer, files, versions),
        snapshots=SnapshotOperations(authorizer, versions, data),
        rows=RowOperations(store, authorizer, data, versions, adapters.evaluator),
        versions=versions,
        refs=refs,
        batches=BatchOperations(store, authorizer, files, versions),
        functions=FunctionOperations(store, authorizer),
        schemas=SchemaOperations(authorizer, versions, columns, drops, adapters.evaluator),
        indexes=IndexOperations(store, authorizer, versions, LanceTableIndexes(versions, data), jobs),
        transactions=TransactionOperations(store, authorizer, versions, data),
        columns=columns,
        views=ViewOperations(store, authorizer, files, data, adapters.sources, jobs),
        jobs=jobs,
        secrets=SecretOperations(store, authorizer, adapters.cipher),
        access=AccessOperations(store, authorizer, adapters.settings_access, adapters.directory.note_change),
        stored_queries=StoredQueryOperations(store, authorizer, files, data),
        explain=Explainer(
            store,
            authorizer,
            versions,
            adapters.assessor,
            adapters.view_assessor,
            adapters.clusters,
            environments,
        ),
        provenance=ColumnProvenance(store, authorizer, versions, adapters.assessor, owners),
        lineage=Lineage(store, authorizer, versions, adapters.sources),
        view_status=ViewStatusOperations(
            store, authorizer, versions, adapters.view_assessor, adapters.sources, owners
        ),
        environments=environments,
        iceberg_tables=iceberg.tables,
        iceberg_views=iceberg.views,
        iceberg_access=iceberg.access,
        iceberg_signing=iceberg.signing,
        scan_planner=iceberg.planner,
        receipts=ReceiptOperations(store, authorizer, adapters.idempotency_lifetime),
        name_hints=NameHints(store, authorizer),
        warehouse_name=adapters.warehouse_name,
        namespace_separator=adapters.namespace_separator,
        audit=AuditOperations(store, authorizer),
        health=ServerHealth(store, files, worker),
        tokens=adapters.authentication,
    )


def _files_of(store: SqlStore, files: Warehouse, table_id: UUID) -> CatalogFileIO:
    def is_foreign(directory: str) -> bool:
        with store.reading() as tx:
            return tx.iceberg.is_in_another(directory, table_id)

    return CatalogFileIO(files, is_foreign)


@dataclass(frozen=True, slots=True)
class IcebergOperations:
    tables: IcebergTableOperations
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
        views=IcebergViewOperations(store, authorizer, metadata, locations, committer),
        access=IcebergAccess(store, authorizer, files, locations),
        signing=RequestSigning(authorizer, tables, signer),
        planner=ScanPlanner(partial(_files_of, store, files)),
    )


def open_warehouse(settings: ServerSettings) -> Warehouse:
    if not settings.has_object_store:
        return LocalTableFiles(Path(settings.warehouse_uri), settings.allowed_locations)
    # Lance, Arrow and the Python workers of Spark read their configuration from the environment, like boto3.
    os.environ.update(missing_variables(os.environ))
    environment = read_environment(os.environ)
    return S3TableFiles(
        parse_prefix(settings.warehouse_uri),
        open_client("s3", environment),
        environment,
        _vendor(settings, environment),
    )


def open_signer(settings: ServerSettings) -> RequestSigner | None:
    """None if remote signing is off."""
    if not settings.s3_remote_signing:
        return None
    environment = read_environment(os.environ)
    return S3RequestSigner(parse_prefix(settings.warehouse_uri), environment.endpoint, own_keys())


def _vendor(settings: ServerSettings, environment: ObjectStoreEnvironment) -> CredentialVendor:
    match settings.s3_vend:
        case "none":
            return NoCredentials()
        case "static":
            return StaticCredentials(
                settings.s3_client_access_key_id or "", settings.s3_client_secret_access_key or ""
            )
        case "sts":
            return AssumedRole(settings.s3_role_arn or "", open_client("sts", environment))
