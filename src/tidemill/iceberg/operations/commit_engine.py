"""Commits tables and views: writes metadata files, then swaps the catalog rows in one transaction.

Every create, commit and replace goes through `Committer`:

1. `plan` reads the current state and returns one `PlannedChange` per table or view.
2. The engine writes a new metadata file for each change. Nothing refers to these files yet.
3. One transaction records the result in the request's receipt (`Mutation`), then swaps each row from the
   state that `plan` saw to the new one. The row decides which state is current; the files only follow.

If another process committed in between, a swap finds a different state: the transaction rolls back, the new
files are removed, and everything starts over at step 1 with the state that is current by then. Requirements
are therefore always checked against the very state that the updates are applied to.

If the database never answers COMMIT, nobody knows whether the rows refer to the new files. Removing them
could destroy a committed table, so they stay, and `InDoubtCommits` (in `outcomes`) decides about them later.
Removing files is always best effort: an unused file does no harm, a missing one breaks a table.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final, TypeAlias

import structlog

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.operations.receipts import Mutation
from tidemill.catalog.ports import CatalogTransaction
from tidemill.catalog.retries import retry_deadlocks
from tidemill.errors import CommitStateUnknown, Unavailable
from tidemill.iceberg.errors import CommitConflict, NameTaken
from tidemill.iceberg.files import MetadataFiles
from tidemill.iceberg.model.entries import Document, Entry
from tidemill.iceberg.operations.names import check_no_overlap, location_overlap
from tidemill.iceberg.operations.outcomes import InDoubtCommits, Transition, are_committed, run_transaction
from tidemill.iceberg.operations.purges import FileRemover
from tidemill.iceberg.ports import IcebergStore, IcebergTransaction

MAX_ATTEMPTS: Final = 40
FIRST_PAUSE_SECONDS: Final = 0.002
LONGEST_PAUSE_SECONDS: Final = 0.2
LOCK_COUNT: Final = 256

log = structlog.get_logger("tidemill.iceberg")

Recorder: TypeAlias = Callable[[CatalogTransaction, Sequence[Entry]], None]
"""Runs first in the transaction of a commit; see `Mutation.record`."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The planned change of one table or view.

    `after` has no metadata file yet; the engine writes `document` and fills it in. Without a document nothing
    is written, and the commit only checks that the entry is still in the state `before`. `obsolete` lists the
    files that are no longer needed after the commit.
    """

    before: Entry | None
    after: Entry
    document: Document | None
    obsolete: Sequence[str] = ()

    @property
    def has_new_location(self) -> bool:
        return self.before is None or self.before.location != self.after.location


class _ConcurrentCommit(CommitConflict):
    """Another commit replaced the state that the change was planned for."""


class Committer:
    def __init__(self, store: IcebergStore, files: MetadataFiles) -> None:
        self._store = store
        self._files = files
        self._remover = FileRemover(store, files)
        self._in_doubt = InDoubtCommits(store, files)
        # Threads of one process take turns per table; otherwise they would keep invalidating each other.
        self._locks = [Lock() for _ in range(LOCK_COUNT)]

    def commit(
        self, mutation: Mutation[Entry], ident: TableIdent, plan: Callable[[], PlannedChange]
    ) -> Entry:
        """Commits one change; see `commit_all`."""
        [entry] = self._commit([ident], lambda: [plan()], lambda tx, entries: mutation.record(tx, entries[0]))
        return entry

    def commit_all(
        self,
        mutation: Mutation[Sequence[Entry]],
        idents: Sequence[TableIdent],
        plan: Callable[[], Sequence[PlannedChange]],
    ) -> Sequence[Entry]:
        """Commits what `plan` returns; calls it again when another commit was faster.

        Raises whatever `plan` raises, ReceiptExists, CommitConflict after the last attempt, and
        CommitStateUnknown when the outcome cannot be determined.
        """
        return self._commit(idents, plan, mutation.record)

    def _commit(
        self,
        idents: Sequence[TableIdent],
        plan: Callable[[], Sequence[PlannedChange]],
        record: Recorder,
    ) -> Sequence[Entry]:
        with _best_effort_cleanup():
            self._in_doubt.resolve()
        with ExitStack() as held_locks:
            for number in sorted({hash(ident) % LOCK_COUNT for ident in idents}):
                held_locks.enter_context(self._locks[number])
            for attempt in range(MAX_ATTEMPTS):
                changes = plan()
                try:
                    return self._write_and_commit(changes, record)
                except _ConcurrentCommit:
                    _back_off(attempt)
        names = ", ".join(map(str, idents))
        raise CommitConflict(
            f"Cannot commit {names}: other commits were faster {MAX_ATTEMPTS} times; try again"
        )

    def _write_and_commit(self, changes: Sequence[PlannedChange], record: Recorder) -> Sequence[Entry]:
        written: list[str] = []
        with_files: list[PlannedChange] = []
        try:
            for change in changes:
                with_files.append(self._with_metadata_file(change, written))
            self._swap(with_files, record)
        except CommitStateUnknown:
            self._in_doubt.add(_transitions(with_files), written)
            raise
        except Exception:
            with _best_effort_cleanup():
                for file in written:
                    self._files.remove(file)
            raise
        with _best_effort_cleanup():
            for change in changes:
                self._remover.remove_obsolete(change.obsolete, change.after.entry_id)
        return [change.after for change in with_files]

    def _swap(self, changes: Sequence[PlannedChange], record: Recorder) -> None:
        def work(tx: IcebergTransaction) -> None:
            record(tx, [change.after for change in changes])
            # All transactions lock locations before tables; the opposite order could deadlock.
            _check_locations(tx, changes)
            if len(changes) > 1:
                _lock(tx, changes)
            for change in sorted(changes, key=lambda change: change.after.entry_id):
                _apply(tx, change)

        retry_deadlocks(
            lambda: run_transaction(self._store, work, lambda tx, _: are_committed(tx, _transitions(changes)))
        )

    def _with_metadata_file(self, change: PlannedChange, written: list[str]) -> PlannedChange:
        if change.document is None:
            return change
        self._check_directory(change, change.document)
        previous = None if change.before is None else change.before.metadata_location
        file = self._files.write(change.document, change.after.kind, previous)
        written.append(file.location)
        return replace(
            change, after=replace(change.after, metadata_location=file.location, metadata=file.data)
        )

    def _check_directory(self, change: PlannedChange, document: Document) -> None:
        """Raises InvalidInput before a file or directory is created inside the location of another entry."""
        directory = self._files.directory_of(document)
        is_own = directory.startswith(f"{change.after.location}/")
        if is_own and not change.has_new_location:
            return
        with self._store.reading() as tx:
            check_no_overlap(tx, change.after)
            if not is_own and tx.iceberg.is_in_another(directory, change.after.entry_id):
                raise location_overlap(directory)


def _transitions(changes: Sequence[PlannedChange]) -> Sequence[Transition]:
    return [(change.before, change.after) for change in changes if change.document is not None]


@contextmanager
def _best_effort_cleanup() -> Iterator[None]:
    """Logs failures to remove files: the commit is already decided, and an unused file does no harm."""
    try:
        yield
    except (Unavailable, OSError) as error:
        log.warning("unused files were not removed", problem=str(error))


def _check_locations(tx: IcebergTransaction, changes: Sequence[PlannedChange]) -> None:
    for change in changes:
        if change.has_new_location and (
            tx.iceberg.is_location_taken(change.after)
            or any(
                _overlap(change.after.location, other.after.location)
                for other in changes
                if other is not change
            )
        ):
            raise location_overlap(change.after.location)


def _lock(tx: IcebergTransaction, changes: Sequence[PlannedChange]) -> None:
    """Locks namespaces that gain names, then existing tables: the lock order of all transactions."""
    tx.namespaces.lock_all({change.after.ident.namespace for change in changes if change.before is None})
    tx.iceberg.lock_all({change.before.entry_id for change in changes if change.before is not None})


def _overlap(left: str, right: str) -> bool:
    return left == right or left.startswith(f"{right}/") or right.startswith(f"{left}/")


def _apply(tx: IcebergTransaction, change: PlannedChange) -> None:
    """Raises _ConcurrentCommit."""
    if change.before is None:
        try:
            tx.iceberg.add(change.after)
        except NameTaken as error:
            raise _ConcurrentCommit from error
    elif change.document is None:
        if not _is_unchanged(tx, change.before):
            raise _ConcurrentCommit
    elif not tx.iceberg.swap(change.before, change.after):
        raise _ConcurrentCommit


def _is_unchanged(tx: IcebergTransaction, entry: Entry) -> bool:
    """The entry does not change, but its requirements must still hold when the other changes commit."""
    found = tx.iceberg.lock(entry.ident, entry.kind)
    return found is not None and found.metadata_location == entry.metadata_location


def _back_off(attempt: int) -> None:
    longest = min(FIRST_PAUSE_SECONDS * 2**attempt, LONGEST_PAUSE_SECONDS)
    time.sleep(random.uniform(0, longest))
