"""From a state to the next: files first, then one transaction; from the start when somebody was faster."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

import structlog

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.ports import CatalogTransaction
from tidemill.catalog.retries import retry_deadlocks
from tidemill.errors import CommitStateUnknown, Unavailable
from tidemill.iceberg.errors import CommitConflict, NameTaken
from tidemill.iceberg.files import MetadataFiles
from tidemill.iceberg.model.entries import Document, Entry
from tidemill.iceberg.operations.file_removal import FileRemoval
from tidemill.iceberg.operations.names import location_taken, refuse_overlap
from tidemill.iceberg.operations.outcomes import Change, UnsettledCommits, carry_out, have_happened
from tidemill.iceberg.ports import IcebergStore, IcebergTransaction

ATTEMPTS: Final = 40
FIRST_PAUSE_SECONDS: Final = 0.002
LONGEST_PAUSE_SECONDS: Final = 0.2
LOCKS: Final = 256

log = structlog.get_logger("tidemill.iceberg")


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one table or view: `after` is still without its file; no document means no change.

    `obsolete` are files that nobody needs once it is done.
    """

    before: Entry | None
    after: Entry
    document: Document | None
    obsolete: Sequence[str] = ()

    @property
    def is_placed_anew(self) -> bool:
        return self.before is None or self.before.place != self.after.place


class _Overtaken(CommitConflict):
    """The state a step began from is gone."""


class Committer:
    def __init__(self, store: IcebergStore, files: MetadataFiles) -> None:
        self._store = store
        self._files = files
        self._removal = FileRemoval(store, files)
        self._unsettled = UnsettledCommits(store, files)
        # Threads of one process would otherwise race each other again and again for the same table.
        self._locks = [Lock() for _ in range(LOCKS)]

    def commit(
        self,
        idents: Sequence[TableIdent],
        plan: Callable[[], Sequence[Step]],
        on_commit: Callable[[CatalogTransaction, Sequence[Entry]], None],
    ) -> Sequence[Entry]:
        """`plan` looks at the present state and is asked again when that has changed meanwhile.

        Raises what it raises, CommitConflict when others were faster every time, and CommitStateUnknown.
        """
        with _tidying():
            self._unsettled.settle()
        with ExitStack() as turns:
            for number in sorted({hash(ident) % LOCKS for ident in idents}):
                turns.enter_context(self._locks[number])
            for attempt in range(ATTEMPTS):
                steps = plan()
                try:
                    return self._carry_out(steps, on_commit)
                except _Overtaken:
                    _pause(attempt)
        named = ", ".join(map(str, idents))
        raise CommitConflict(f"Cannot commit {named}: other commits were faster {ATTEMPTS} times; try again")

    def _carry_out(
        self, steps: Sequence[Step], on_commit: Callable[[CatalogTransaction, Sequence[Entry]], None]
    ) -> Sequence[Entry]:
        written: list[str] = []
        done: list[Step] = []
        try:
            for step in steps:
                done.append(self._with_file(step, written))
            self._commit(done, on_commit)
        except CommitStateUnknown:
            self._unsettled.add(_changes(done), written)
            raise
        except Exception:
            with _tidying():
                for file in written:
                    self._files.remove(file)
            raise
        with _tidying():
            for step in steps:
                self._removal.remove_obsolete(step.obsolete, step.after.entry_id)
        return [step.after for step in done]

    def _commit(
        self, steps: Sequence[Step], on_commit: Callable[[CatalogTransaction, Sequence[Entry]], None]
    ) -> None:
        def work(tx: IcebergTransaction) -> None:
            on_commit(tx, [step.after for step in steps])
            # Others hold a place before they hold a table; whoever did it the other way round would
            # wait for somebody who waits.
            _check_places(tx, steps)
            if len(steps) > 1:
                _lock(tx, steps)
            for step in sorted(steps, key=lambda step: step.after.entry_id):
                _apply(tx, step)

        retry_deadlocks(
            lambda: carry_out(self._store, work, lambda tx, _: have_happened(tx, _changes(steps)))
        )

    def _with_file(self, step: Step, written: list[str]) -> Step:
        if step.document is None:
            return step
        self._check_directory(step, step.document)
        previous = None if step.before is None else step.before.metadata_location
        made = self._files.write(step.document, step.after.kind, previous)
        written.append(made.location)
        return replace(step, after=replace(step.after, metadata_location=made.location, metadata=made.data))

    def _check_directory(self, step: Step, document: Document) -> None:
        """Raises InvalidInput; afterwards there would be a file or directory where somebody else has his."""
        directory = self._files.directory_of(document)
        is_own = directory.startswith(f"{step.after.place}/")
        if is_own and not step.is_placed_anew:
            return
        with self._store.reading() as tx:
            refuse_overlap(tx, step.after)
            if not is_own and tx.iceberg.is_in_another(directory, step.after.entry_id):
                raise location_taken(directory)


def _changes(steps: Sequence[Step]) -> Sequence[Change]:
    return [(step.before, step.after) for step in steps if step.document is not None]


@contextmanager
def _tidying() -> Iterator[None]:
    """What is decided stays so: a file too many does no harm."""
    try:
        yield
    except (Unavailable, OSError) as error:
        log.warning("files that nobody needs were not removed", problem=str(error))


def _check_places(tx: IcebergTransaction, steps: Sequence[Step]) -> None:
    for step in steps:
        if step.is_placed_anew and (
            tx.iceberg.is_place_taken(step.after)
            or any(_overlap(step.after.place, other.after.place) for other in steps if other is not step)
        ):
            raise location_taken(step.after.place)


def _lock(tx: IcebergTransaction, steps: Sequence[Step]) -> None:
    """Namespaces that gain names, then the tables there are: the order that all transactions keep."""
    tx.namespaces.lock_all({step.after.ident.namespace for step in steps if step.before is None})
    tx.iceberg.lock_all({step.before.entry_id for step in steps if step.before is not None})


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def _apply(tx: IcebergTransaction, step: Step) -> None:
    """Raises _Overtaken."""
    if step.before is None:
        try:
            tx.iceberg.add(step.after)
        except NameTaken as error:
            raise _Overtaken from error
    elif step.document is None:
        if not _is_still(tx, step.before):
            raise _Overtaken
    elif not tx.iceberg.swap(step.before, step.after):
        raise _Overtaken


def _is_still(tx: IcebergTransaction, entry: Entry) -> bool:
    """It is not changed, and what was required of it has to hold when others are."""
    found = tx.iceberg.lock(entry.ident, entry.kind)
    return found is not None and found.metadata_location == entry.metadata_location


def _pause(attempt: int) -> None:
    longest = min(FIRST_PAUSE_SECONDS * 2**attempt, LONGEST_PAUSE_SECONDS)
    time.sleep(random.uniform(0, longest))
