"""What callers can do with Iceberg tables, apart from committing to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import orjson

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import Page
from tidemill.catalog.ports import Authorizer
from tidemill.iceberg.errors import IcebergTableNotFound, MetadataFileNotFound
from tidemill.iceberg.files import MetadataFiles
from tidemill.iceberg.metadata.tables import check_table, new_table
from tidemill.iceberg.model.entries import (
    Document,
    Entry,
    EntryKind,
    NewTable,
    Purge,
    Registration,
    StagedTable,
)
from tidemill.iceberg.operations.commit_engine import Committer, Step
from tidemill.iceberg.operations.locations import EntryPlaces
from tidemill.iceberg.operations.names import EntryNames, now_ms, refuse_overlap, refuse_taken
from tidemill.iceberg.operations.outcomes import carry_out
from tidemill.iceberg.operations.purges import Purger
from tidemill.iceberg.ports import IcebergStore, OnCommit


class IcebergTableOperations:
    def __init__(
        self,
        store: IcebergStore,
        authorizer: Authorizer,
        files: MetadataFiles,
        places: EntryPlaces,
        committer: Committer,
        purger: Purger,
        *,
        looks_for_files: bool,
    ) -> None:
        """Looking for the file of what is loaded is cheap on a local disk, and a round trip elsewhere."""
        self._store = store
        self._authorizer = authorizer
        self._files = files
        self._places = places
        self._committer = committer
        self._purger = purger
        self._looks_for_files = looks_for_files
        self._names = EntryNames(store, authorizer, EntryKind.TABLE, IcebergTableNotFound)

    def create(self, caller: Caller, ident: TableIdent, new: NewTable, on_commit: OnCommit[Entry]) -> Entry:
        self._authorizer.require(caller, Permission.WRITE, ident)
        entry, document = self._described(ident, new)
        self._places.prepare(document["location"])

        def plan() -> Sequence[Step]:
            with self._store.reading() as tx:
                refuse_taken(tx, entry)
            return [Step(None, entry, document)]

        [made] = self._committer.commit([ident], plan, lambda tx, entries: on_commit(tx, entries[0]))
        return made

    def stage(
        self, caller: Caller, ident: TableIdent, new: NewTable, on_commit: OnCommit[StagedTable]
    ) -> StagedTable:
        """Tells what the table would be; nothing is made but the directories clients may need."""
        self._authorizer.require(caller, Permission.WRITE, ident)
        entry, document = self._described(ident, new)
        staged = StagedTable(ident, entry.place, orjson.dumps(document))
        self._places.prepare(document["location"])
        # Without a key nothing is written, and with one the receipt tells what became of it.
        carry_out(self._store, lambda tx: on_commit(tx, staged), lambda *_: False)
        return staged

    def load(self, caller: Caller, ident: TableIdent) -> Entry:
        """Raises MetadataFileNotFound where it is seen at once that the file is gone."""
        entry = self._names.get(caller, ident)
        while self._looks_for_files and not self._files.is_there(entry.metadata_location):
            # Commits since then may have removed the file of a state that is old by now.
            missing, entry = entry.metadata_location, self._names.get(caller, ident)
            if entry.metadata_location == missing:
                self._files.check_reachable()
                raise MetadataFileNotFound(missing)
        return entry

    def check_exists(self, caller: Caller, ident: TableIdent) -> None:
        self._names.check_exists(caller, ident)

    def list_in(self, caller: Caller, namespace: NamespacePath, page: Page) -> Sequence[str]:
        return self._names.list_in(caller, namespace, page)

    def register(
        self,
        caller: Caller,
        ident: TableIdent,
        metadata_location: str,
        mode: Registration,
        on_commit: OnCommit[Entry],
    ) -> Entry:
        """Gives a name to a table whose metadata is in storage already."""
        replaces = mode is Registration.OVERWRITE
        self._authorizer.require(caller, Permission.MANAGE if replaces else Permission.WRITE, ident)
        with self._store.reading() as tx:
            existing = tx.iceberg.find(ident, EntryKind.TABLE) if replaces else None
            entry_id, _ = self._places.new()
            entry = Entry(entry_id, ident, EntryKind.TABLE, "", metadata_location, b"")
            if existing is None:
                refuse_taken(tx, entry)
        data = self._files.read(metadata_location)
        document = orjson.loads(data)
        check_table(document)
        entry = replace(entry, place=self._places.checked(document["location"]), metadata=data)
        return self._names.put(entry, existing, on_commit, self._check_there)

    def unregister(self, caller: Caller, ident: TableIdent, on_commit: OnCommit[Entry]) -> Entry:
        """The name goes, all files stay; gives the last state."""
        self._authorizer.require(caller, Permission.MANAGE, ident)
        return self._names.remove(ident, on_commit)

    def drop(self, caller: Caller, ident: TableIdent, purge: Purge, on_commit: OnCommit[None]) -> None:
        self._authorizer.require(caller, Permission.MANAGE, ident)

        entry = self._names.remove(ident, lambda tx, _: on_commit(tx, None), purge)
        if purge is Purge.REMOVE_FILES:
            self._purger.purge(entry)

    def rename(
        self, caller: Caller, source: TableIdent, target: TableIdent, on_commit: OnCommit[None]
    ) -> None:
        self._names.rename(caller, source, target, on_commit)

    def _check_there(self, entry: Entry) -> None:
        if not self._files.is_there(entry.metadata_location):
            raise MetadataFileNotFound(entry.metadata_location)

    def _described(self, ident: TableIdent, new: NewTable) -> tuple[Entry, Document]:
        entry_id, own = self._places.new()
        location = own if new.location is None else new.location.rstrip("/")
        entry = Entry(entry_id, ident, EntryKind.TABLE, self._places.checked(location), "", b"")
        with self._store.reading() as tx:
            refuse_taken(tx, entry)
            refuse_overlap(tx, entry)
            return entry, new_table(new, location, entry_id, now_ms(tx))
