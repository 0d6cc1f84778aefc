"""Operations on Iceberg views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import orjson

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import Page
from tidemill.catalog.ports import Authorizer
from tidemill.iceberg.errors import IcebergViewNotFound
from tidemill.iceberg.files import MetadataFiles
from tidemill.iceberg.metadata.requirements import check_view_requirements
from tidemill.iceberg.metadata.update_kinds import checked_view_updates
from tidemill.iceberg.metadata.views import changed_view, check_view, new_view
from tidemill.iceberg.model.entries import Change, Entry, EntryKind, NewView
from tidemill.iceberg.operations.commit_engine import Committer, PlannedChange
from tidemill.iceberg.operations.names import EntryLocations, EntryNames, check_name_free, now_ms
from tidemill.iceberg.ports import IcebergStore, OnCommit


class IcebergViewOperations:
    def __init__(
        self,
        store: IcebergStore,
        authorizer: Authorizer,
        files: MetadataFiles,
        locations: EntryLocations,
        committer: Committer,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self._locations = locations
        self._committer = committer
        self._names = EntryNames(store, authorizer, EntryKind.VIEW, IcebergViewNotFound)

    def create(self, caller: Caller, ident: TableIdent, new: NewView, on_commit: OnCommit[Entry]) -> Entry:
        self._authorizer.require(caller, Permission.WRITE, ident)
        entry_id, default_location = self._locations.new()
        location = default_location if new.location is None else new.location.rstrip("/")
        entry = Entry(entry_id, ident, EntryKind.VIEW, self._locations.resolve(location), "", b"")

        def plan() -> Sequence[PlannedChange]:
            with self._store.reading() as tx:
                check_name_free(tx, entry)
                return [PlannedChange(None, entry, new_view(new, location, entry_id, now_ms(tx)))]

        [created] = self._committer.commit([ident], plan, lambda tx, entries: on_commit(tx, entries[0]))
        return created

    def load(self, caller: Caller, ident: TableIdent) -> Entry:
        return self._names.get(caller, ident)

    def check_exists(self, caller: Caller, ident: TableIdent) -> None:
        self._names.check_exists(caller, ident)

    def list_in(self, caller: Caller, namespace: NamespacePath, page: Page) -> Sequence[str]:
        return self._names.list_in(caller, namespace, page)

    def replace(self, caller: Caller, change: Change, on_commit: OnCommit[Entry]) -> Entry:
        """The last writer wins: a request can require only the view's UUID; updates apply to any state."""
        self._authorizer.require(caller, Permission.WRITE, change.ident)
        # Checked first: a malformed update must not end in a conflict, which clients answer by retrying.
        checked_view_updates(change.updates)

        def plan() -> Sequence[PlannedChange]:
            with self._store.reading() as tx:
                before = self._names.get_in(tx, change.ident)
                now = now_ms(tx)
            base = orjson.loads(before.metadata)
            check_view_requirements(base, change.requirements)
            document = changed_view(base, change.updates, now)
            if document is base:
                return [PlannedChange(before, before, None)]
            if document["location"] == base["location"]:
                return [PlannedChange(before, before, document)]
            return [
                PlannedChange(
                    before, replace(before, location=self._locations.resolve(document["location"])), document
                )
            ]

        [replaced] = self._committer.commit(
            [change.ident], plan, lambda tx, entries: on_commit(tx, entries[0])
        )
        return replaced

    def register(
        self, caller: Caller, ident: TableIdent, metadata_location: str, on_commit: OnCommit[Entry]
    ) -> Entry:
        """Adds a view whose metadata file already exists in storage."""
        self._authorizer.require(caller, Permission.WRITE, ident)
        entry_id, _ = self._locations.new()
        entry = Entry(entry_id, ident, EntryKind.VIEW, "", metadata_location, b"")
        with self._store.reading() as tx:
            check_name_free(tx, entry)
        data = self._files.read(metadata_location)
        document = orjson.loads(data)
        check_view(document)
        entry = replace(entry, location=self._locations.resolve(document["location"]), metadata=data)
        return self._names.put(entry, None, on_commit)

    def drop(self, caller: Caller, ident: TableIdent, on_commit: OnCommit[None]) -> None:
        """Keeps the metadata file in storage, from where the view can be registered again."""
        self._authorizer.require(caller, Permission.MANAGE, ident)
        self._names.remove(ident, lambda tx, _: on_commit(tx, None))

    def rename(
        self, caller: Caller, source: TableIdent, target: TableIdent, on_commit: OnCommit[None]
    ) -> None:
        self._names.rename(caller, source, target, on_commit)
