"""Commits of Iceberg tables: of one, or of several together or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import orjson

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.ports import Authorizer
from tidemill.errors import InvalidInput
from tidemill.iceberg.errors import IcebergTableNotFound, NameTaken
from tidemill.iceberg.metadata.requirements import check_table_requirements, is_create
from tidemill.iceberg.metadata.table_updates import checked_updates
from tidemill.iceberg.metadata.tables import changed_table, expired_metadata_files
from tidemill.iceberg.model.entries import Change, Entry, EntryKind
from tidemill.iceberg.operations.commit_engine import Committer, Step
from tidemill.iceberg.operations.locations import EntryPlaces
from tidemill.iceberg.operations.names import now_ms, refuse_overlap
from tidemill.iceberg.ports import IcebergStore, IcebergTransaction, OnCommit


class IcebergCommitOperations:
    def __init__(
        self, store: IcebergStore, authorizer: Authorizer, places: EntryPlaces, committer: Committer
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._places = places
        self._committer = committer

    def commit(self, caller: Caller, change: Change, on_commit: OnCommit[Entry]) -> Entry:
        """Applies it to the state there is when it is applied, as often as that changes meanwhile."""
        [entry] = self._commit(caller, [change], lambda tx, entries: on_commit(tx, entries[0]))
        return entry

    def commit_all(self, caller: Caller, changes: Sequence[Change], on_commit: OnCommit[None]) -> None:
        named = [change.ident for change in changes]
        twice = next((ident for ident in named if named.count(ident) > 1), None)
        if twice is not None:
            raise InvalidInput("table-changes", f"{twice} is there twice; one change has all its updates")
        self._commit(caller, changes, lambda tx, _: on_commit(tx, None))

    def _commit(
        self, caller: Caller, changes: Sequence[Change], on_commit: OnCommit[Sequence[Entry]]
    ) -> Sequence[Entry]:
        for change in changes:
            self._authorizer.require(caller, Permission.WRITE, change.ident)
        for change in changes:
            # Before anything that a client would take for a reason to try the same again.
            checked_updates(change.updates)

        def plan() -> Sequence[Step]:
            with self._store.reading() as tx:
                return [self._step(tx, change) for change in changes]

        return self._committer.commit([change.ident for change in changes], plan, on_commit)

    def _step(self, tx: IcebergTransaction, change: Change) -> Step:
        before = tx.iceberg.find(change.ident, EntryKind.TABLE)
        if before is None:
            return self._creation(tx, change)
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
            return Step(before, before, None)
        after = replace(before, place=self._place(before, base["location"], document["location"]))
        return Step(before, after, document, expired_metadata_files(base, document))

    def _creation(self, tx: IcebergTransaction, change: Change) -> Step:
        """A table that was staged is made by the commit that says it must not exist."""
        holder = tx.iceberg.find_holder(change.ident)
        if holder is not None and is_create(change.requirements):
            raise NameTaken(change.ident, EntryKind.TABLE, holder)
        if not is_create(change.requirements):
            raise IcebergTableNotFound(change.ident)
        if not change.ident.namespace.is_root:
            tx.namespaces.get(change.ident.namespace)
        check_table_requirements(None, change.requirements)
        entry_id, location = self._places.new()
        document = changed_table(
            None, change.updates, default_location=location, now_ms=now_ms(tx), base_location=None
        )
        place = self._places.checked(document["location"])
        entry = Entry(entry_id, change.ident, EntryKind.TABLE, place, "", b"")
        refuse_overlap(tx, entry)
        self._places.prepare(document["location"])
        return Step(None, entry, document)

    def _place(self, before: Entry, location: str, changed: str) -> str:
        return before.place if changed == location else self._places.checked(changed)
