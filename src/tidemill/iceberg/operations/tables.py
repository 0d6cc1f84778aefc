"""Operations on Iceberg tables: create, stage, load, commit, register, rename, drop.

A commit checks the client's requirements and applies its updates to the state that is current at that
moment. The commit engine calls the planning code here again whenever another commit changes that state first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import orjson

from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import Page
from tidemill.catalog.operations.receipts import Mutation, authorize
from tidemill.catalog.ports import Authorizer
from tidemill.errors import InvalidInput
from tidemill.iceberg.errors import IcebergTableNotFound, MetadataFileNotFound, NameTaken
from tidemill.iceberg.files import MetadataFiles
from tidemill.iceberg.metadata.requirements import check_table_requirements, is_create
from tidemill.iceberg.metadata.tables import changed_table, check_table, expired_metadata_files, new_table
from tidemill.iceberg.metadata.update_kinds import checked_table_updates
from tidemill.iceberg.model.entries import (
    Change,
    Document,
    Entry,
    EntryKind,
    NewTable,
    Purge,
    Registration,
    StagedTable,
)
from tidemill.iceberg.operations.commit_engine import Committer, PlannedChange
from tidemill.iceberg.operations.names import (
    EntryLocations,
    EntryNames,
    check_name_free,
    check_no_overlap,
    now_ms,
)
from tidemill.iceberg.operations.needs import to_commit, to_register, to_write
from tidemill.iceberg.operations.outcomes import run_transaction
from tidemill.iceberg.operations.purges import Purger
from tidemill.iceberg.ports import IcebergStore, IcebergTransaction


class IcebergTableOperations:
    def __init__(
        self,
        store: IcebergStore,
        authorizer: Authorizer,
        files: MetadataFiles,
        locations: EntryLocations,
        committer: Committer,
        purger: Purger,
        *,
        checks_files: bool,
    ) -> None:
        """`checks_files`: loading checks that the metadata file exists; cheap only on a local disk."""
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self._locations = locations
        self._committer = committer
        self._purger = purger
        self._checks_files = checks_files
        self._names = EntryNames(store, authorizer, EntryKind.TABLE, IcebergTableNotFound)

    def create(self, mutation: Mutation[Entry], ident: TableIdent, new: NewTable) -> Entry:
        authorize(self._authorizer, mutation.caller, to_write(ident))
        entry, document = self._new_entry(ident, new)
        self._locations.make_directories(document["location"])

        def plan() -> PlannedChange:
            with self._store.reading() as tx:
                check_name_free(tx, entry)
            return PlannedChange(None, entry, document)

        return self._committer.commit(mutation, ident, plan)

    def stage(self, mutation: Mutation[StagedTable], ident: TableIdent, new: NewTable) -> StagedTable:
        """Returns what the table would be; creates nothing but the directories that clients may need."""
        authorize(self._authorizer, mutation.caller, to_write(ident))
        entry, document = self._new_entry(ident, new)
        staged = StagedTable(ident, entry.location, orjson.dumps(document))
        self._locations.make_directories(document["location"])
        # The transaction writes at most a receipt. Repeating it is safe: an existing receipt is replayed.
        run_transaction(self._store, lambda tx: mutation.record(tx, staged), lambda *_: False)
        return staged

    def load(self, caller: Caller, ident: TableIdent) -> Entry:
        """Raises MetadataFileNotFound if files are checked and the current metadata file is gone."""
        entry = self._names.get(caller, ident)
        while self._checks_files and not self._files.exists(entry.metadata_location):
            # A concurrent commit may have replaced this state and removed its file: look again.
            missing, entry = entry.metadata_location, self._names.get(caller, ident)
            if entry.metadata_location == missing:
                self._files.check_reachable()
                raise MetadataFileNotFound(missing)
        return entry

    def check_exists(self, caller: Caller, ident: TableIdent) -> None:
        self._names.check_exists(caller, ident)

    def list_in(self, caller: Caller, namespace: NamespacePath, page: Page) -> Sequence[str]:
        return self._names.list_in(caller, namespace, page)

    def commit(self, mutation: Mutation[Entry], change: Change) -> Entry:
        """Applies the change to the current state, and again whenever that changes before the commit."""
        self._check_changes(mutation.caller, [change])

        def plan() -> PlannedChange:
            with self._store.reading() as tx:
                return self._planned_change(tx, change)

        return self._committer.commit(mutation, change.ident, plan)

    def commit_all(self, mutation: Mutation[Sequence[Entry]], changes: Sequence[Change]) -> Sequence[Entry]:
        """Applies all changes or none."""
        idents = [change.ident for change in changes]
        duplicate = next((ident for ident in idents if idents.count(ident) > 1), None)
        if duplicate is not None:
            raise InvalidInput(
                "table-changes", f"{duplicate} appears more than once; put all its updates into one change"
            )
        self._check_changes(mutation.caller, changes)

        def plan() -> Sequence[PlannedChange]:
            with self._store.reading() as tx:
                return [self._planned_change(tx, change) for change in changes]

        return self._committer.commit_all(mutation, idents, plan)

    def register(
        self,
        mutation: Mutation[Entry],
        ident: TableIdent,
        metadata_location: str,
        mode: Registration,
    ) -> Entry:
        """Adds a table whose metadata file already exists in storage."""
        authorize(self._authorizer, mutation.caller, to_register(ident, mode))
        is_overwrite = mode is Registration.OVERWRITE
        with self._store.reading() as tx:
            existing = tx.iceberg.find(ident, EntryKind.TABLE) if is_overwrite else None
            entry = Entry(uuid4(), ident, EntryKind.TABLE, "", metadata_location, b"")
            if existing is None:
                check_name_free(tx, entry)
        data = self._files.read(metadata_location)
        document = orjson.loads(data)
        check_table(document)
        entry = replace(entry, location=self._locations.resolve(document["location"]), metadata=data)
        return self._names.put(mutation, entry, existing, self._check_file_exists)

    def unregister(self, mutation: Mutation[Entry], ident: TableIdent) -> Entry:
        """Removes the name, keeps all files, and returns the last state."""
        return self._names.remove(mutation, ident)

    def drop(self, mutation: Mutation[Entry], ident: TableIdent, purge: Purge) -> Entry:
        """Returns the last state."""
        entry = self._names.remove(mutation, ident, purge)
        if purge is Purge.REMOVE_FILES:
            self._purger.purge(entry)
        return entry

    def rename(self, mutation: Mutation[None], source: TableIdent, target: TableIdent) -> None:
        self._names.rename(mutation, source, target)

    def _check_file_exists(self, entry: Entry) -> None:
        if not self._files.exists(entry.metadata_location):
            raise MetadataFileNotFound(entry.metadata_location)

    def _new_entry(self, ident: TableIdent, new: NewTable) -> tuple[Entry, Document]:
        with self._store.reading() as tx:
            entry_id, default_location = self._locations.new(tx, ident)
            location = default_location if new.location is None else new.location.rstrip("/")
            entry = Entry(entry_id, ident, EntryKind.TABLE, self._locations.resolve(location), "", b"")
            check_name_free(tx, entry)
            check_no_overlap(tx, entry)
            return entry, new_table(new, location, entry_id, now_ms(tx))

    def _check_changes(self, caller: Caller, changes: Sequence[Change]) -> None:
        authorize(self._authorizer, caller, to_commit(changes))
        for change in changes:
            checked_table_updates(change.updates)

    def _planned_change(self, tx: IcebergTransaction, change: Change) -> PlannedChange:
        before = tx.iceberg.find(change.ident, EntryKind.TABLE)
        if before is None:
            return self._planned_creation(tx, change)
        base = orjson.loads(before.metadata)
        check_table_requirements(base, change.requirements)
        document = changed_table(
            base,
            change.updates,
            default_location=base["location"],
            now_ms=now_ms(tx),
            base_location=before.metadata_location,
        )
        if document is base:
            return PlannedChange(before, before, None)
        after = replace(
            before, location=self._resolved_location(before, base["location"], document["location"])
        )
        return PlannedChange(before, after, document, expired_metadata_files(base, document))

    def _planned_creation(self, tx: IcebergTransaction, change: Change) -> PlannedChange:
        """A staged table is created by the first commit, which requires that the table does not exist yet."""
        holder = tx.iceberg.find_holder(change.ident)
        if holder is not None and is_create(change.requirements):
            raise NameTaken(change.ident, EntryKind.TABLE, holder)
        if not is_create(change.requirements):
            raise IcebergTableNotFound(change.ident, holder)
        if not change.ident.namespace.is_root:
            tx.namespaces.get(change.ident.namespace)
        check_table_requirements(None, change.requirements)
        entry_id, default_location = self._locations.new(tx, change.ident)
        document = changed_table(
            None, change.updates, default_location=default_location, now_ms=now_ms(tx), base_location=None
        )
        location = self._locations.resolve(document["location"])
        entry = Entry(entry_id, change.ident, EntryKind.TABLE, location, "", b"")
        check_no_overlap(tx, entry)
        self._locations.make_directories(document["location"])
        return PlannedChange(None, entry, document)

    def _resolved_location(self, before: Entry, old: str, new: str) -> str:
        return before.location if new == old else self._locations.resolve(new)
