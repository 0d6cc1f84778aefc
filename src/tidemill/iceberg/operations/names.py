"""What is the same for names of tables and of views: looking them up, moving them, taking them away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import Page
from tidemill.catalog.ports import Authorizer
from tidemill.errors import InvalidInput, TidemillError
from tidemill.iceberg.errors import CommitConflict, NameTaken
from tidemill.iceberg.model.entries import Entry, EntryKind, Purge
from tidemill.iceberg.operations.outcomes import carry_out, have_happened
from tidemill.iceberg.ports import IcebergStore, IcebergTransaction, OnCommit


class EntryNames:
    """Of one kind; `missing` is the error that tells of a name that is not one of these."""

    def __init__(
        self,
        store: IcebergStore,
        authorizer: Authorizer,
        kind: EntryKind,
        missing: Callable[[TableIdent], TidemillError],
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._kind = kind
        self._missing = missing

    def get(self, caller: Caller, ident: TableIdent) -> Entry:
        self._authorizer.require(caller, Permission.READ, ident)
        with self._store.reading() as tx:
            return self.found(tx, ident)

    def found(self, tx: IcebergTransaction, ident: TableIdent) -> Entry:
        entry = tx.iceberg.find(ident, self._kind)
        if entry is None:
            raise self._missing(ident)
        return entry

    def check_exists(self, caller: Caller, ident: TableIdent) -> None:
        self._authorizer.require(caller, Permission.READ, ident)
        with self._store.reading() as tx:
            if not tx.iceberg.exists(ident, self._kind):
                raise self._missing(ident)

    def list_in(self, caller: Caller, namespace: NamespacePath, page: Page) -> Sequence[str]:
        self._authorizer.require(caller, Permission.READ, namespace)
        with self._store.reading() as tx:
            return tx.iceberg.list_names(namespace, self._kind, page)

    def put(
        self,
        entry: Entry,
        existing: Entry | None,
        on_commit: OnCommit[Entry],
        check: Callable[[Entry], None] = lambda _: None,
    ) -> Entry:
        """Adds the entry, or puts it in the place of the one there is.

        `check` is called with the row locked: a commit that removes old metadata files waits, or was first.
        """
        after = entry if existing is None else replace(entry, entry_id=existing.entry_id)

        def work(tx: IcebergTransaction) -> Entry:
            on_commit(tx, after)
            if tx.iceberg.is_place_taken(after):
                raise location_taken(after.place)
            if existing is None:
                tx.iceberg.add(after)
            elif not tx.iceberg.swap(existing, after):
                raise CommitConflict(f"Cannot overwrite {entry.ident}: it was changed meanwhile; try again")
            else:
                check(after)
            return after

        return carry_out(self._store, work, lambda tx, _: have_happened(tx, [(existing, after)]))

    def remove(self, ident: TableIdent, on_commit: OnCommit[Entry], purge: Purge = Purge.KEEP_FILES) -> Entry:
        """Takes the name away; files that are to be removed are noted in the same transaction."""

        def work(tx: IcebergTransaction) -> Entry:
            entry = tx.iceberg.lock(ident, self._kind)
            if entry is None:
                raise self._missing(ident)
            on_commit(tx, entry)
            if purge is Purge.REMOVE_FILES:
                tx.purges.add(entry)
            tx.iceberg.remove(entry.entry_id)
            return entry

        def is_gone(tx: IcebergTransaction, entry: Entry) -> bool:
            return tx.iceberg.lock_state(entry.entry_id) is None

        return carry_out(self._store, work, is_gone)

    def rename(
        self, caller: Caller, source: TableIdent, target: TableIdent, on_commit: OnCommit[None]
    ) -> None:
        """Raises RenameTargetTaken, NamespaceNotFound."""
        self._authorizer.require(caller, Permission.MANAGE, source)
        self._authorizer.require(caller, Permission.WRITE, target)

        def work(tx: IcebergTransaction) -> Entry:
            on_commit(tx, None)
            entry = self.found(tx, source)
            tx.namespaces.lock_all([source.namespace, target.namespace])
            if source != target and not tx.iceberg.rename(entry, target):
                raise self._missing(source)
            return entry

        def is_renamed(tx: IcebergTransaction, entry: Entry) -> bool | None:
            for ident, answer in ((target, True), (source, False)):
                found = tx.iceberg.find(ident, self._kind)
                if found is not None and found.entry_id == entry.entry_id:
                    return answer
            return None

        carry_out(self._store, work, is_renamed)


def now_ms(tx: IcebergTransaction) -> int:
    return int(tx.now().timestamp() * 1000)


def refuse_taken(tx: IcebergTransaction, entry: Entry) -> None:
    """Raises NameTaken, NamespaceNotFound: what adding the entry would raise, before files are written."""
    holder = tx.iceberg.find_holder(entry.ident)
    if holder is not None:
        raise NameTaken(entry.ident, entry.kind, holder)
    if not entry.ident.namespace.is_root:
        tx.namespaces.get(entry.ident.namespace)


def refuse_overlap(tx: IcebergTransaction, entry: Entry) -> None:
    """Raises what taking the place would raise, before anything is written there."""
    if tx.iceberg.is_overlapping(entry):
        raise location_taken(entry.place)


def location_taken(place: str) -> InvalidInput:
    """Not a conflict: on a commit clients would take that for a reason to try the same again."""
    return InvalidInput("location", f"{place:.200} is, contains or lies in the place of something else")
