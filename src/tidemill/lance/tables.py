"""Operations on tables, with a cache of their schemas; on single versions: restore, statistics, metadata."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import lance
import pyarrow as pa

from tidemill.catalog.errors import (
    InvalidTableState,
    NamespaceAlreadyExists,
    NamespaceNotFound,
    TableAlreadyExists,
    TableIsQuery,
)
from tidemill.catalog.locations import TableLocations, storage_access_of
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import (
    SYSTEM_NAMESPACE,
    CreateMode,
    DependantPolicy,
    Namespace,
    NamespacePath,
    TableIdent,
)
from tidemill.catalog.model.tables import MAIN_BRANCH, Declared, Page, Table, TableKind, TableVersion
from tidemill.catalog.nonblocking import may_block
from tidemill.catalog.operations.dependants import lock_for_removal
from tidemill.catalog.operations.visibility import require_visible, visible_names
from tidemill.catalog.ports import (
    Authorizer,
    CatalogTransaction,
    TableFiles,
)
from tidemill.catalog.retries import retry_deadlocks
from tidemill.errors import InvalidInput
from tidemill.jobs.ports import JobStore
from tidemill.lance.datasets import CommittingNamespace, LanceTableData, translated
from tidemill.lance.model.tables import (
    InsertMode,
    TableDescription,
    TablePoint,
    TableStatistics,
    TableSummary,
)
from tidemill.lance.queries import InternalColumns, without_columns
from tidemill.lance.refs import RefOperations
from tidemill.lance.stored_queries import stored_query_of
from tidemill.lance.versions.commit import VersionOperations


class TableOperations:
    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        files: TableFiles,
        data: LanceTableData,
        versions: VersionOperations,
        refs: RefOperations,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self._data = data
        self._snapshots = LanceTableSnapshots(versions, data)
        self._versions = versions
        self._refs = refs
        self._locations = TableLocations(files)
        self._schemas = SchemaCache(data, InternalColumns(store))

    def create(
        self,
        caller: Caller,
        ident: TableIdent,
        rows: pa.RecordBatchReader,
        mode: CreateMode,
        properties: Mapping[str, str],
        location: str | None = None,
    ) -> TableDescription:
        """Declared and overwritten tables keep their location; overwritten ones also keep their history."""
        self._authorizer.require(caller, Permission.WRITE, ident)
        existing = self._find(ident)
        if existing is not None and existing.kind is TableKind.QUERY:
            raise TableAlreadyExists(ident)
        if existing is not None and location is not None:
            self._check_location(existing, location)
        if existing is not None and self._versions.find_latest(existing) is not None:
            if mode is CreateMode.CREATE:
                raise TableAlreadyExists(ident)
            if mode is CreateMode.OVERWRITE:
                self._authorizer.require(caller, Permission.MANAGE, ident)
                self._overwrite(existing, rows, properties)
            return self._describe(self._get(ident))
        try:
            if existing is None:
                self._create_new(self._new_table(ident, properties, location), rows)
            else:
                self._fill(existing, rows, properties)
        except TableAlreadyExists:
            # Another caller has created it since the check, or an Iceberg table or view has the name.
            if mode is not CreateMode.EXIST_OK or self._find(ident) is None:
                raise
        return self._describe(self._get(ident))

    def declare(
        self,
        caller: Caller,
        ident: TableIdent,
        properties: Mapping[str, str],
        location: str | None = None,
    ) -> Table:
        self._authorizer.require(caller, Permission.WRITE, ident)
        table = self._new_table(ident, properties, location)
        if ident.namespace == SYSTEM_NAMESPACE:
            self._ensure_system_namespace()
        with self._store.transaction() as tx:
            self._add(tx, table)
        return table

    def describe(
        self, caller: Caller, ident: TableIdent, point: TablePoint | None = None
    ) -> TableDescription:
        self._authorizer.require(caller, Permission.READ, ident)
        try:
            table, version = self._resolve_point(caller, ident, point or TablePoint())
        except TableIsQuery as query:
            return self._describe_query(query.table)
        return self._description(table, version)

    def check_exists(self, caller: Caller, ident: TableIdent, point: TablePoint) -> None:
        """Raises the same errors as `describe`, without opening the table."""
        self._authorizer.require(caller, Permission.READ, ident)
        if point == TablePoint():
            self._get(ident)
        else:
            self._resolve_point(caller, ident, point)

    def summary(self, description: TableDescription) -> TableSummary | None:
        """Counts for the described version; None if the table has no data."""
        version = description.version
        return None if version is None else self._snapshots.summary(description.table, version.version)

    def storage_options(self, caller: Caller, table: Table) -> Mapping[str, str]:
        """Storage options with which a client can open the table. They may contain credentials."""
        return self._files.vend(table.location, storage_access_of(self._authorizer, caller, table.ident))

    def list_in(self, caller: Caller, path: NamespacePath, page: Page, declared: Declared) -> Sequence[str]:
        """Those that the caller sees."""
        with self._store.reading() as tx:
            return visible_names(
                self._authorizer, caller, path, page, lambda part: tx.tables.list_names(path, part, declared)
            )

    def list_all(self, caller: Caller, declared: Declared) -> Sequence[TableIdent]:
        """Tables in all namespaces, as far as the caller sees them."""
        root = NamespacePath()
        require_visible(self._authorizer, caller, root)
        with self._store.reading() as tx:
            idents = [table.ident for table in tx.tables.list_under(root, declared)]
        return [ident for ident in idents if self._authorizer.sees(caller, ident)]

    def drop(
        self, caller: Caller, ident: TableIdent, policy: DependantPolicy = DependantPolicy.RESTRICT
    ) -> Table:
        """Raises HasDependants if views are made from it, unless the policy says what becomes of them."""
        self._authorizer.require(caller, Permission.MANAGE, ident)
        removed = retry_deadlocks(lambda: self._remove(caller, ident, policy))
        for table in removed:
            self._files.remove_table(table.location)
        return removed[0]

    def _remove(self, caller: Caller, ident: TableIdent, policy: DependantPolicy) -> Sequence[Table]:
        with self._store.transaction() as tx:
            table = tx.tables.get(ident)
            if not self._locations.is_managed(table.location):
                raise InvalidTableState(
                    ident,
                    f"its data at {table.location} is outside the warehouse and cannot be deleted; "
                    "deregister it instead",
                )
            removed = lock_for_removal(tx, self._authorizer, caller, f"Table {ident}", [table], policy)
            for each in removed:
                tx.tables.remove(each.table_id)
        return removed

    def _create_new(self, table: Table, rows: pa.RecordBatchReader) -> None:
        try:
            self._data.create(table, rows, lambda tx, _: self._add(tx, table))
        except (TableAlreadyExists, NamespaceNotFound):
            self._remove_unregistered(table)
            raise

    def _remove_unregistered(self, table: Table) -> None:
        """Cleans up after a failed creation. Files at a location that the caller chose stay."""
        with self._store.transaction() as tx:
            if tx.tables.find_by_id(table.table_id) is not None:
                # Another writer published its first version before ours.
                tx.tables.remove(table.table_id)
        if table.location == self._files.location_of(table.table_id):
            self._files.remove_table(table.location)

    def _fill(self, table: Table, rows: pa.RecordBatchReader, properties: Mapping[str, str]) -> None:
        def set_properties(tx: CatalogTransaction, _: int) -> None:
            if properties:
                tx.tables.set_properties(table.table_id, {**table.properties, **properties})

        self._data.create(table, rows, set_properties)

    def _overwrite(self, table: Table, rows: pa.RecordBatchReader, properties: Mapping[str, str]) -> None:
        if table.kind is TableKind.VIEW:
            raise InvalidTableState(
                table.ident, "is a materialized view and cannot be replaced by a table; drop it first"
            )
        self._data.insert(table, rows, InsertMode.OVERWRITE)
        with self._store.transaction() as tx:
            tx.tables.set_properties(table.table_id, properties)

    def _check_location(self, table: Table, location: str) -> None:
        if self._locations.normalize(location) != table.location:
            raise InvalidInput(
                "location",
                f"{table.ident} is at {table.location} and cannot be moved; leave the location out",
            )

    def _add(self, tx: CatalogTransaction, table: Table) -> None:
        if table.location != self._files.location_of(table.table_id):
            self._locations.check_free(tx, table.location)
        tx.tables.add(table)

    def _resolve_point(
        self, caller: Caller, ident: TableIdent, point: TablePoint
    ) -> tuple[Table, TableVersion | None]:
        """Returns the table on the branch, and the version. The version is None if the table has no data."""
        version, branch = point.version, point.branch or MAIN_BRANCH
        if point.tag is not None:
            tag = self._refs.get_tag(caller, ident, point.tag)
            version, branch = tag.version, tag.branch
        table = self._versions.get_branch(ident, branch)
        if version is None:
            return table, self._versions.find_latest(table)
        return table, self._versions.get(table, version)

    def _describe_query(self, table: Table) -> TableDescription:
        """The columns of a stored query, with the latest version of its source."""
        stored = stored_query_of(self._store, table)
        return TableDescription(table, self._versions.find_latest(self._get(stored.source)), stored.output)

    def _describe(self, table: Table) -> TableDescription:
        return self._description(table, self._versions.find_latest(table))

    def _description(self, table: Table, version: TableVersion | None) -> TableDescription:
        return TableDescription(table, version, None if version is None else self._schemas.of(table, version))

    def _ensure_system_namespace(self) -> None:
        """Creates the namespace in which clients keep their own tables; they assume that it exists."""
        with self._store.transaction() as tx, suppress(NamespaceAlreadyExists):
            if tx.namespaces.find(SYSTEM_NAMESPACE) is None:
                tx.namespaces.add(Namespace(uuid4(), SYSTEM_NAMESPACE))

    def _get(self, ident: TableIdent) -> Table:
        with self._store.reading() as tx:
            return tx.tables.get(ident)

    def _find(self, ident: TableIdent) -> Table | None:
        with self._store.reading() as tx:
            if not ident.namespace.is_root:
                tx.namespaces.get(ident.namespace)
            return tx.tables.find(ident)

    def _new_table(self, ident: TableIdent, properties: Mapping[str, str], location: str | None) -> Table:
        table_id = uuid4()
        self._files.check_reachable()
        if location is None:
            table_location = self._files.location_of(table_id)
        else:
            table_location = self._locations.normalize(location)
            with self._store.transaction() as tx:
                self._locations.check_free(tx, table_location)
            self._locations.check_empty(table_location)
        return Table(table_id, ident, table_location, properties=dict(properties))


MAX_FIELDS: Final = 200_000


class SchemaCache:
    """The schemas that clients see: those of materialized views are without their internal columns.

    A committed version never changes, so its schema is read once. Evicts the oldest entries.
    """

    def __init__(self, data: LanceTableData, internal: InternalColumns, max_fields: int = MAX_FIELDS) -> None:
        self._data = data
        self._internal = internal
        self._max_fields = max_fields
        self._schemas: dict[Hashable, pa.Schema] = {}
        self._fields = 0
        self._lock = threading.Lock()

    def of(self, table: Table, version: TableVersion) -> pa.Schema:
        # A version number can be reused by another commit, so the number alone is not enough.
        key = (
            version.table_id,
            version.branch,
            version.version,
            version.staged_path,
            version.created_at,
        )
        schema = self._schemas.get(key)
        if schema is None:
            may_block()
            schema = without_columns(self._data.schema(table, version.version), self._internal.of(table))
            self._add(key, schema)
        return schema

    def _add(self, key: Hashable, schema: pa.Schema) -> None:
        with self._lock:
            if key in self._schemas:
                return
            self._schemas[key] = schema
            self._fields += len(schema) + 1
            while self._fields > self._max_fields:
                oldest = self._schemas.pop(next(iter(self._schemas)))
                self._fields -= len(oldest) + 1


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
