"""Everything a route can call, in one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol

from tidemill.catalog.operations.batches import BatchOperations
from tidemill.catalog.operations.functions import FunctionOperations
from tidemill.catalog.operations.namespaces import NamespaceOperations
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
from tidemill.jobs.operations.columns import ColumnOperations
from tidemill.jobs.operations.environments import EnvironmentOperations
from tidemill.jobs.operations.explain import Explainer
from tidemill.jobs.operations.indexing import IndexOperations
from tidemill.jobs.operations.lineage import Lineage
from tidemill.jobs.operations.provenance import ColumnProvenance
from tidemill.jobs.operations.submissions import JobOperations
from tidemill.jobs.operations.view_status import ViewStatusOperations
from tidemill.jobs.operations.views import ViewOperations

READY: Final = "ok"


@dataclass(frozen=True, slots=True)
class HealthReport:
    """How the server's parts are; `database` and `storage` are "ok" or say what is wrong."""

    status: Literal["ok", "degraded"]
    version: str
    worker: Literal["running", "starting", "absent"]
    database: str
    storage: str

    @property
    def is_serving(self) -> bool:
        return self.database == READY and self.storage == READY


class HealthCheck(Protocol):
    def health(self) -> HealthReport: ...


@dataclass(frozen=True, slots=True)
class Operations:
    namespaces: NamespaceOperations
    tables: TableOperations
    registrations: RegistrationOperations
    snapshots: SnapshotOperations
    rows: RowOperations
    versions: VersionOperations
    refs: RefOperations
    batches: BatchOperations
    functions: FunctionOperations
    schemas: SchemaOperations
    indexes: IndexOperations
    transactions: TransactionOperations
    columns: ColumnOperations
    views: ViewOperations
    jobs: JobOperations
    secrets: SecretOperations
    stored_queries: StoredQueryOperations
    explain: Explainer
    provenance: ColumnProvenance
    lineage: Lineage
    view_status: ViewStatusOperations
    environments: EnvironmentOperations
    health: HealthCheck
