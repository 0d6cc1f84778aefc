"""Operations on Iceberg views."""

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
from tidemill.iceberg.errors import IcebergViewNotFound
from tidemill.iceberg.files import MetadataFiles
from tidemill.iceberg.metadata.requirements import check_view_requirements
from tidemill.iceberg.metadata.update_kinds import checked_view_updates
from tidemill.iceberg.metadata.views import changed_view, check_view, new_view
from tidemill.iceberg.model.entries import Change, Entry, EntryKind, NewView
from tidemill.iceberg.operations.commit_engine import Committer, PlannedChange
from tidemill.iceberg.operations.names import EntryLocations, EntryNames, check_name_free, now_ms
from tidemill.iceberg.operations.needs import to_commit, to_write
from tidemill.iceberg.ports import IcebergStore


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

    def create(self, mutation: Mutation[Entry], ident: TableIdent, new: NewView) -> Entry:
        authorize(self._authorizer, mutation.caller, to_write(ident))
        with self._store.reading() as tx:
            entry_id, default_location = self._locations.new(tx, ident)
        location = default_location if new.location is None else new.location.rstrip("/")
        entry = Entry(entry_id, ident, EntryKind.VIEW, self._locations.resolve(location), "", b"")

        def plan() -> PlannedChange:
            with self._store.reading() as tx:
                check_name_free(tx, entry)
                return PlannedChange(None, entry, new_view(new, location, entry_id, now_ms(tx)))

        return self._committer.commit(mutation, ident, plan)

    def load(self, caller: Caller, ident: TableIdent) -> Entry:
        return self._names.get(caller, ident)

    def check_exists(self, caller: Caller, ident: TableIdent) -> None:
        self._names.check_exists(caller, ident)

    def list_in(self, caller: Caller, namespace: NamespacePath, page: Page) -> Sequence[str]:
        return self._names.list_in(caller, namespace, page)

    def replace(self, mutation: Mutation[Entry], change: Change) -> Entry:
        """The last writer wins: a request can require only the view's UUID; updates apply to any state."""
        authorize(self._authorizer, mutation.caller, to_commit([change]))
        checked_view_updates(change.updates)

        def plan() -> PlannedChange:
            with self._store.reading() as tx:
                before = self._names.get_in(tx, change.ident)
                now = now_ms(tx)
            base = orjson.loads(before.metadata)
            check_view_requirements(base, change.requirements)
            document = changed_view(base, change.updates, now)
            if document is base:
                return PlannedChange(before, before, None)
            if document["location"] == base["location"]:
                return PlannedChange(before, before, document)
            location = self._locations.resolve(document["location"])
            return PlannedChange(before, replace(before, location=location), document)

        return self._committer.commit(mutation, change.ident, plan)

    def register(self, mutation: Mutation[Entry], ident: TableIdent, metadata_location: str) -> Entry:
        """Adds a view whose metadata file already exists in storage."""
        authorize(self._authorizer, mutation.caller, to_write(ident))
        entry = Entry(uuid4(), ident, EntryKind.VIEW, "", metadata_location, b"")
        with self._store.reading() as tx:
            check_name_free(tx, entry)
        data = self._files.read(metadata_location)
        document = orjson.loads(data)
        check_view(document)
        entry = replace(entry, location=self._locations.resolve(document["location"]), metadata=data)
        return self._names.put(mutation, entry, None)

    def drop(self, mutation: Mutation[Entry], ident: TableIdent) -> Entry:
        """Keeps the metadata file in storage, from where the view can be registered again."""
        return self._names.remove(mutation, ident)

    def rename(self, mutation: Mutation[None], source: TableIdent, target: TableIdent) -> None:
        self._names.rename(mutation, source, target)
