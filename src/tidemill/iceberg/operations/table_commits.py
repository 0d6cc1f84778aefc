"""Commits to Iceberg tables: to one table, or to several atomically.

A commit checks the client's requirements and applies its updates to the state that is current at that
moment. The commit engine calls the planning code here again whenever another commit changes that state first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import orjson

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.ports import Authorizer
from tidemill.errors import InvalidInput
from tidemill.iceberg.errors import IcebergTableNotFound, NameTaken
from tidemill.iceberg.metadata.requirements import check_table_requirements, is_create
from tidemill.iceberg.metadata.tables import changed_table, expired_metadata_files
from tidemill.iceberg.metadata.update_kinds import checked_table_updates
from tidemill.iceberg.model.entries import Change, Entry, EntryKind
from tidemill.iceberg.operations.commit_engine import Committer, PlannedChange
from tidemill.iceberg.operations.names import EntryLocations, check_no_overlap, now_ms
from tidemill.iceberg.ports import IcebergStore, IcebergTransaction, OnCommit


class IcebergCommitOperations:
    def __init__(
        self, store: IcebergStore, authorizer: Authorizer, locations: EntryLocations, committer: Committer
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._locations = locations
        self._committer = committer

    def commit(self, caller: Caller, change: Change, on_commit: OnCommit[Entry]) -> Entry:
        """Applies the change to the current state, and again whenever that changes before the commit."""
        [entry] = self._commit(caller, [change], lambda tx, entries: on_commit(tx, entries[0]))
        return entry

    def commit_all(self, caller: Caller, changes: Sequence[Change], on_commit: OnCommit[None]) -> None:
        idents = [change.ident for change in changes]
        duplicate = next((ident for ident in idents if idents.count(ident) > 1), None)
        if duplicate is not None:
            raise InvalidInput(
                "table-changes", f"{duplicate} appears more than once; put all its updates into one change"
            )
        self._commit(caller, changes, lambda tx, _: on_commit(tx, None))

    def _commit(
        self, caller: Caller, changes: Sequence[Change], on_commit: OnCommit[Sequence[Entry]]
    ) -> Sequence[Entry]:
        for change in changes:
            self._authorizer.require(caller, Permission.WRITE, change.ident)
        for change in changes:
            # Checked first: a malformed update must not end in a conflict, which clients answer by retrying.
            checked_table_updates(change.updates)

        def plan() -> Sequence[PlannedChange]:
            with self._store.reading() as tx:
                return [self._planned_change(tx, change) for change in changes]

        return self._committer.commit([change.ident for change in changes], plan, on_commit)

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
            raise IcebergTableNotFound(change.ident)
        if not change.ident.namespace.is_root:
            tx.namespaces.get(change.ident.namespace)
        check_table_requirements(None, change.requirements)
        entry_id, default_location = self._locations.new()
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
