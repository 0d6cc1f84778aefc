"""The operations that routes can call, and the values they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal, Protocol

from tidemill.catalog.operations.access import AccessOperations
from tidemill.catalog.operations.audit import AuditOperations
from tidemill.catalog.operations.functions import FunctionOperations
from tidemill.catalog.operations.namespaces import NamespaceOperations
from tidemill.catalog.operations.receipts import ReceiptOperations
from tidemill.catalog.operations.secrets import SecretOperations
from tidemill.iceberg.operations.access import IcebergAccess, RequestSigning
from tidemill.iceberg.operations.tables import IcebergTableOperations
from tidemill.iceberg.operations.views import IcebergViewOperations
from tidemill.iceberg.planning.scans import ScanPlanner
from tidemill.jobs.service.columns import ColumnOperations
from tidemill.jobs.service.environments import EnvironmentOperations
from tidemill.jobs.service.explain import Explainer
from tidemill.jobs.service.indexes import IndexOperations
from tidemill.jobs.service.lineage import Lineage
from tidemill.jobs.service.missing_names import NameHints
from tidemill.jobs.service.status import ColumnProvenance, ViewStatusOperations
from tidemill.jobs.service.submissions import JobOperations
from tidemill.jobs.service.views import ViewOperations
from tidemill.lance.batches import BatchOperations
from tidemill.lance.refs import RefOperations
from tidemill.lance.registrations import RegistrationOperations
from tidemill.lance.rows import RowOperations
from tidemill.lance.schemas import SchemaOperations
from tidemill.lance.stored_queries import StoredQueryOperations
from tidemill.lance.tables import SnapshotOperations, TableOperations
from tidemill.lance.transactions import TransactionOperations
from tidemill.lance.versions.commit import VersionOperations

READY: Final = "ok"


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The health of the server. `database` and `storage` are "ok" or an error message.

    `reads` and `writes` say for both what still works: storage that is read-only can be read.
    """

    status: Literal["ok", "degraded"]
    version: str
    worker: Literal["running", "starting", "absent"]
    database: str
    storage: str
    reads: Mapping[str, bool]
    writes: Mapping[str, bool]

    @property
    def is_serving(self) -> bool:
        return self.database == READY and self.storage == READY


class HealthCheck(Protocol):
    def health(self) -> HealthReport: ...


@dataclass(frozen=True, slots=True)
class ClientCredential:
    """The id and secret of a client."""

    client_id: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class IssuedToken:
    value: str = field(repr=False)
    lifetime: timedelta
    principal: str


class TokenIssuer(Protocol):
    def issue(self, credential: ClientCredential | None, address: str = "") -> IssuedToken:
        """Issues a token for the client; raises Unauthenticated and Throttled."""

    def exchange(self, token: str, credential: ClientCredential | None, address: str = "") -> IssuedToken:
        """Replaces a token; raises InvalidInput for a bad token, Unauthenticated for a bad credential."""


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
    access: AccessOperations
    stored_queries: StoredQueryOperations
    explain: Explainer
    provenance: ColumnProvenance
    lineage: Lineage
    view_status: ViewStatusOperations
    environments: EnvironmentOperations
    iceberg_tables: IcebergTableOperations
    iceberg_views: IcebergViewOperations
    iceberg_access: IcebergAccess
    iceberg_signing: RequestSigning
    scan_planner: ScanPlanner
    receipts: ReceiptOperations
    name_hints: NameHints
    warehouse_name: str
    namespace_separator: str
    audit: AuditOperations
    health: HealthCheck
    tokens: TokenIssuer
