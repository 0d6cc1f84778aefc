"""Batch requests: several changes to tables and versions that commit together or not at all.

A batch runs in three steps. *Prepare* reads staged manifests and tags from storage, so that the transaction
is short. *Reserve* is one database transaction over all operations. *Publish* gives each staged manifest its
final name. Publishing happens outside the transaction, so a writer by location may take one of the names in
between. Then the versions of the batch are withdrawn and the tables it declared are removed: otherwise a
client would get a conflict for a batch of which a part has happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import uuid4

from tidemill.catalog.errors import InvalidTableState, TableNotFound, TableVersionAlreadyExists
from tidemill.catalog.locations import TableLocations
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import Table, TableVersion, VersionEntry
from tidemill.catalog.ports import Authorizer, TableFiles
from tidemill.catalog.retries import retry_deadlocks, run_repeatable
from tidemill.errors import InvalidInput
from tidemill.jobs.ports import JobStore, JobTransaction
from tidemill.lance.refs import LanceTableRefs
from tidemill.lance.versions.commit import VersionOperations
from tidemill.lance.versions.manifests import StagedManifest


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions from `start` up to, but not including, `end`. None means no upper bound."""

    start: int
    end: int | None

    def has(self, version: int) -> bool:
        return version >= self.start and (self.end is None or version < self.end)


@dataclass(frozen=True, slots=True)
class DeclareTable:
    ident: TableIdent
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None


@dataclass(frozen=True, slots=True)
class CreateVersion:
    ident: TableIdent
    branch: str
    entry: VersionEntry


@dataclass(frozen=True, slots=True)
class DeleteVersions:
    ident: TableIdent
    branch: str
    ranges: tuple[VersionRange, ...]


@dataclass(frozen=True, slots=True)
class DeregisterTable:
    ident: TableIdent


BatchOperation: TypeAlias = DeclareTable | CreateVersion | DeleteVersions | DeregisterTable
BatchResult: TypeAlias = Table | TableVersion | int
"""The declared or deregistered table, the created version, or the number of deleted versions."""

PERMISSIONS: Mapping[type[BatchOperation], Permission] = {
    DeclareTable: Permission.WRITE,
    CreateVersion: Permission.WRITE,
    DeleteVersions: Permission.MANAGE,
    DeregisterTable: Permission.MANAGE,
}


@dataclass(slots=True)
class _BatchState:
    """What was read from storage before the transaction, and what is left to do in storage after it."""

    tag_names: dict[TableIdent, Mapping[tuple[str, int], str]] = field(default_factory=dict)
    deregistered: set[TableIdent] = field(default_factory=set)
    deleted_versions: list[TableVersion] = field(default_factory=list)
    tables: dict[int, Table] = field(default_factory=dict)
    entries: dict[int, VersionEntry] = field(default_factory=dict)
    staged: dict[int, StagedManifest | None] = field(default_factory=dict)


class BatchOperations:
    def __init__(
        self,
        store: JobStore,
        authorizer: Authorizer,
        files: TableFiles,
        versions: VersionOperations,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self._locations = TableLocations(files)
        self._versions = versions
        self._refs = LanceTableRefs(versions)

    def delete_versions(
        self, caller: Caller, ident: TableIdent, branch: str, ranges: tuple[VersionRange, ...]
    ) -> int:
        (count,) = self.commit(caller, [DeleteVersions(ident, branch, ranges)])
        assert isinstance(count, int)
        return count

    def commit(self, caller: Caller, operations: Sequence[BatchOperation]) -> Sequence[BatchResult]:
        """Returns results in the order of the operations. All rows change in one transaction."""
        for operation in operations:
            self._authorizer.require(caller, PERMISSIONS[type(operation)], operation.ident)
        state = _BatchState(deregistered={op.ident for op in operations if isinstance(op, DeregisterTable)})
        for index, operation in enumerate(operations):
            self._prepare(index, operation, state)
        results = self._reserve(operations, state)
        self._publish(operations, results, state)
        self._versions.remove_deleted(state.deleted_versions)
        return results

    def _prepare(self, index: int, operation: BatchOperation, state: _BatchState) -> None:
        """Reads storage before the transaction, so that the transaction is short."""
        match operation:
            case CreateVersion():
                try:
                    table = self._versions.get_table(operation.ident, operation.branch)
                except TableNotFound:
                    # An earlier operation of the batch may declare it.
                    return
                state.entries[index] = self._versions.resolved(table, operation.entry)
                state.staged[index] = self._versions.check_entry(table, state.entries[index])
            case DeleteVersions():
                table = self._versions.get_branch(operation.ident, operation.branch)
                self._versions.find_latest(table)
                tags = self._refs.list_tags(table).values()
                state.tag_names[operation.ident] = {(tag.branch, tag.version): tag.name for tag in tags}
            case DeclareTable() | DeregisterTable():
                pass

    def _reserve(self, operations: Sequence[BatchOperation], state: _BatchState) -> list[BatchResult]:
        """Runs the transaction. It may be repeated, so it first clears what a failed attempt collected."""

        def reserve_all(tx: JobTransaction) -> list[BatchResult]:
            state.deleted_versions.clear()
            if len(operations) > 1:
                _lock_affected(tx, operations, state.deregistered)
            return [self._apply(tx, index, operation, state) for index, operation in enumerate(operations)]

        def run() -> list[BatchResult]:
            with self._store.transaction() as tx:
                return reserve_all(tx)

        if all(isinstance(operation, CreateVersion) for operation in operations):
            return run_repeatable(self._store.transaction, reserve_all)
        return retry_deadlocks(run)

    def _apply(
        self, tx: JobTransaction, index: int, operation: BatchOperation, state: _BatchState
    ) -> BatchResult:
        match operation:
            case DeclareTable():
                table = self._new_table(tx, operation)
                tx.tables.add(table)
                return table
            case CreateVersion():
                table = tx.tables.get(operation.ident).on(operation.branch)
                state.tables[index] = table
                if index not in state.staged:
                    state.entries[index] = self._versions.resolved(table, operation.entry)
                    state.staged[index] = self._versions.check_content(table, state.entries[index])
                return self._versions.add_replayable(tx, table, state.entries[index], state.staged[index])
            case DeleteVersions():
                return self._delete(tx, operation, state)
            case DeregisterTable():
                table = tx.tables.get(operation.ident)
                tx.tables.remove(table.table_id)
                return table

    def _new_table(self, tx: JobTransaction, operation: DeclareTable) -> Table:
        table_id = uuid4()
        if operation.location is None:
            location = self._files.location_of(table_id)
        else:
            location = self._locations.normalize(operation.location)
            self._locations.check_free(tx, location)
            self._locations.check_unversioned(location)
        return Table(table_id, operation.ident, location, properties=dict(operation.properties))

    def _delete(self, tx: JobTransaction, operation: DeleteVersions, state: _BatchState) -> int:
        ident, branch = operation.ident, operation.branch
        table = tx.tables.get(ident)
        rows = tx.versions.list_all(table.table_id, branch)
        selected = [row for row in rows if any(entry.has(row.version) for entry in operation.ranges)]
        if ident not in state.deregistered:
            self._check_deletable(ident, branch, rows, selected, state)
        # A deregistered table keeps its data, and others need the manifests to read it.
        if ident not in state.deregistered:
            for row in selected:
                tx.versions.mark_deleted(row)
            state.deleted_versions.extend(selected)
        return len(selected)

    def _check_deletable(
        self,
        ident: TableIdent,
        branch: str,
        rows: Sequence[TableVersion],
        selected: Sequence[TableVersion],
        state: _BatchState,
    ) -> None:
        for row in selected:
            if row.version == rows[-1].version:
                raise InvalidTableState(
                    ident,
                    f"version {row.version} is the latest and cannot be deleted; drop the table instead",
                )
            tag = state.tag_names[ident].get((branch, row.version))
            if tag is not None:
                raise InvalidTableState(
                    ident,
                    f"version {row.version} has the tag '{tag}' and cannot be deleted; delete the tag first",
                )

    def _publish(
        self, operations: Sequence[BatchOperation], results: list[BatchResult], state: _BatchState
    ) -> None:
        """Publishes the manifests of the reserved versions and puts their final rows into the results.

        If a writer by location has taken one of the names, the whole batch is undone.
        """
        reserved = [
            (index, state.entries[index], result)
            for index, (operation, result) in enumerate(zip(operations, results, strict=True))
            if isinstance(operation, CreateVersion) and isinstance(result, TableVersion)
        ]
        try:
            for index, entry, version in reserved:
                table = state.tables[index]
                settled = self._versions.publish(table, version, entry, state.staged[index])
                if settled is None:
                    raise TableVersionAlreadyExists(table.ident, entry.version)
                results[index] = settled
        except (TableVersionAlreadyExists, InvalidInput):
            for index, _, version in reserved:
                self._versions.withdraw(state.tables[index], version)
            self._remove_declared([result for result in results if isinstance(result, Table)], operations)
            raise

    def _remove_declared(self, tables: Sequence[Table], operations: Sequence[BatchOperation]) -> None:
        """Removes the tables that the batch declared."""
        declared = {operation.ident for operation in operations if isinstance(operation, DeclareTable)}
        with self._store.transaction() as tx:
            for table in tables:
                if table.ident in declared and tx.tables.find_by_id(table.table_id) is not None:
                    tx.tables.remove(table.table_id)


def _lock_affected(
    tx: JobTransaction, operations: Sequence[BatchOperation], deregistered: set[TableIdent]
) -> None:
    """Locks what the operations change in the order that all transactions use, not in that of the request."""
    declared = [operation for operation in operations if isinstance(operation, DeclareTable)]
    namespaces = {operation.ident.namespace for operation in declared}
    if any(operation.location is not None for operation in declared):
        # The root is the lock for locations.
        namespaces.add(NamespacePath())
    tx.namespaces.lock_all(namespaces)
    changed = {operation.ident for operation in operations if not isinstance(operation, DeregisterTable)}
    tx.tables.lock_all(changed, removed=deregistered)


def version_range(start: int, end: int) -> VersionRange:
    """Reads a range as the protocol writes it. An end of -1 includes the latest version."""
    if start < 0 or end < -1:
        raise InvalidInput(
            "ranges", f"[{start}, {end}) must have a start of at least 0 and an end of at least -1"
        )
    if end != -1 and end < start:
        raise InvalidInput("ranges", f"[{start}, {end}) ends before it starts")
    return VersionRange(start, None if end == -1 else end)
