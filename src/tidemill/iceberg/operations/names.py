"""Names and locations, which tables and views share: look up, list, register, rename and remove."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID, uuid4

from tidemill.catalog.locations import (
    ICEBERG_DIRECTORY,
    is_shared_directory,
    namespace_location,
    warehouse_directory,
    warehouse_uri,
)
from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import Page
from tidemill.catalog.operations.receipts import Mutation, authorize
from tidemill.catalog.operations.visibility import visible_names
from tidemill.catalog.ports import Authorizer, TableFiles
from tidemill.errors import InvalidInput, TidemillError
from tidemill.iceberg.errors import CommitConflict, NameTaken
from tidemill.iceberg.files import MetadataFiles
from tidemill.iceberg.model.entries import Entry, EntryKind, Holder, Purge
from tidemill.iceberg.operations.needs import to_remove, to_rename
from tidemill.iceberg.operations.outcomes import are_committed, run_transaction
from tidemill.iceberg.ports import IcebergStore, IcebergTransaction


class EntryNames:
    """Names of one kind of entry; `not_found` builds the error for a name that is not of this kind.

    It is given what has the name instead, so every operation checks permissions before it looks for a name.
    """

    def __init__(
        self,
        store: IcebergStore,
        authorizer: Authorizer,
        kind: EntryKind,
        not_found: Callable[[TableIdent, Holder | None], TidemillError],
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._kind = kind
        self._not_found = not_found

    def get(self, caller: Caller, ident: TableIdent) -> Entry:
        self._authorizer.require(caller, Permission.READ, ident)
        with self._store.reading() as tx:
            return self.get_in(tx, ident)

    def get_in(self, tx: IcebergTransaction, ident: TableIdent) -> Entry:
        entry = tx.iceberg.find(ident, self._kind)
        if entry is None:
            raise self._missing(tx, ident)
        return entry

    def check_exists(self, caller: Caller, ident: TableIdent) -> None:
        self._authorizer.require(caller, Permission.READ, ident)
        with self._store.reading() as tx:
            if not tx.iceberg.exists(ident, self._kind):
                raise self._missing(tx, ident)

    def _missing(self, tx: IcebergTransaction, ident: TableIdent) -> TidemillError:
        return self._not_found(ident, tx.iceberg.find_holder(ident))

    def list_in(self, caller: Caller, namespace: NamespacePath, page: Page) -> Sequence[str]:
        """Those that the caller sees."""
        with self._store.reading() as tx:
            return visible_names(
                self._authorizer,
                caller,
                namespace,
                page,
                lambda part: tx.iceberg.list_names(namespace, self._kind, part),
            )

    def put(
        self,
        mutation: Mutation[Entry],
        entry: Entry,
        existing: Entry | None,
        check: Callable[[Entry], None] = lambda _: None,
    ) -> Entry:
        """Adds the entry, or replaces the existing one.

        `check` runs with the row locked: a commit that removes old metadata files waits, or has finished.
        """
        after = entry if existing is None else replace(entry, entry_id=existing.entry_id)

        def work(tx: IcebergTransaction) -> Entry:
            mutation.record(tx, after)
            if tx.iceberg.is_location_taken(after):
                raise location_overlap(after.location)
            if existing is None:
                tx.iceberg.add(after)
            elif not tx.iceberg.swap(existing, after):
                raise CommitConflict(
                    f"Cannot overwrite {entry.ident}: it was changed concurrently; try again"
                )
            else:
                check(after)
            return after

        return run_transaction(self._store, work, lambda tx, _: are_committed(tx, [(existing, after)]))

    def remove(self, mutation: Mutation[Entry], ident: TableIdent, purge: Purge = Purge.KEEP_FILES) -> Entry:
        """Removes the name, and queues the files for removal in the same transaction if requested."""
        authorize(self._authorizer, mutation.caller, to_remove(ident))

        def work(tx: IcebergTransaction) -> Entry:
            entry = tx.iceberg.lock(ident, self._kind)
            if entry is None:
                raise self._missing(tx, ident)
            mutation.record(tx, entry)
            if purge is Purge.REMOVE_FILES:
                tx.purges.add(entry)
            tx.iceberg.remove(entry.entry_id)
            return entry

        def is_gone(tx: IcebergTransaction, entry: Entry) -> bool:
            return tx.iceberg.lock_state(entry.entry_id) is None

        return run_transaction(self._store, work, is_gone)

    def rename(self, mutation: Mutation[None], source: TableIdent, target: TableIdent) -> None:
        """Raises RenameTargetTaken, NamespaceNotFound."""
        authorize(self._authorizer, mutation.caller, to_rename(source, target))

        def work(tx: IcebergTransaction) -> Entry:
            mutation.record(tx, None)
            entry = self.get_in(tx, source)
            tx.namespaces.lock_all([source.namespace, target.namespace])
            if source != target and not tx.iceberg.rename(entry, target):
                raise self._missing(tx, source)
            return entry

        def is_renamed(tx: IcebergTransaction, entry: Entry) -> bool | None:
            for ident, answer in ((target, True), (source, False)):
                found = tx.iceberg.find(ident, self._kind)
                if found is not None and found.entry_id == entry.entry_id:
                    return answer
            return None

        run_transaction(self._store, work, is_renamed)


def now_ms(tx: IcebergTransaction) -> int:
    return int(tx.now().timestamp() * 1000)


def check_name_free(tx: IcebergTransaction, entry: Entry) -> None:
    """Raises NameTaken or NamespaceNotFound before any file is written, as adding the entry would."""
    holder = tx.iceberg.find_holder(entry.ident)
    if holder is not None:
        raise NameTaken(entry.ident, entry.kind, holder)
    if not entry.ident.namespace.is_root:
        tx.namespaces.get(entry.ident.namespace)


def check_no_overlap(tx: IcebergTransaction, entry: Entry) -> None:
    """Raises InvalidInput before any file is written, as adding the entry would."""
    if tx.iceberg.is_overlapping(entry):
        raise location_overlap(entry.location)


def location_overlap(location: str) -> InvalidInput:
    """Not a conflict: clients answer a conflict on a commit by retrying the same commit."""
    return InvalidInput("location", f"{location:.200} overlaps the location of another table or view")


class EntryLocations:
    """New entries get a directory named by their id, not by their name, so renaming moves no files."""

    def __init__(self, files: TableFiles, metadata: MetadataFiles) -> None:
        self.warehouse = warehouse_uri(files)
        self._directory = warehouse_directory(files)
        self._metadata = metadata

    def new(self, tx: IcebergTransaction, ident: TableIdent) -> tuple[UUID, str]:
        """A new id, and the default location of the entry with that id: in that of its namespace."""
        entry_id = uuid4()
        namespace = tx.namespaces.find(ident.namespace)
        if namespace is None:
            return entry_id, f"{self.warehouse}/{ICEBERG_DIRECTORY}/{entry_id}"
        location = f"{namespace_location(namespace, self.warehouse).rstrip('/')}/{entry_id}"
        try:
            self.resolve(location)
        except InvalidInput:
            # The namespace may have any property `location`, even one where no table may be.
            default = namespace_location(replace(namespace, properties={}), self.warehouse)
            return entry_id, f"{default}/{entry_id}"
        return entry_id, location

    def resolve(self, location: str) -> str:
        """Normalizes a location that a client chose; raises InvalidInput if it must not be used."""
        normalized = self._metadata.resolve(location)
        if is_shared_directory(normalized, self._directory):
            raise InvalidInput(
                "location", f"{location:.200} is a directory that tables share; choose one below it"
            )
        return normalized

    def make_directories(self, location: str) -> None:
        """Some clients only write into existing directories."""
        self._metadata.make_directories(location)
