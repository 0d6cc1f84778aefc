"""Finds out what became of a transaction whose COMMIT was sent and never answered."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final, TypeAlias, TypeVar

import structlog

from tidemill.catalog.retries import PAUSES_SECONDS
from tidemill.errors import CommitStateUnknown, TidemillError, Unavailable
from tidemill.iceberg.files import MetadataFiles
from tidemill.iceberg.model.entries import Entry
from tidemill.iceberg.operations.file_removal import files_of
from tidemill.iceberg.ports import IcebergStore, IcebergTransaction

# PostgreSQL has ended every transaction of a lost connection by then: see the timeouts in store/engine.py.
SETTLE_AFTER_SECONDS: Final = 60.0
MAX_UNSETTLED: Final = 1000

log = structlog.get_logger("tidemill.iceberg")

Result = TypeVar("Result")
Work: TypeAlias = Callable[[IcebergTransaction], Result]
Outcome: TypeAlias = Callable[[IcebergTransaction, Result], bool | None]
"""Whether the work that gave this result has happened; None when that can no longer be told."""

Change: TypeAlias = tuple[Entry | None, Entry]
"""An entry before and after a commit; None before it was made."""


def carry_out(store: IcebergStore, work: Work[Result], outcome: Outcome[Result]) -> Result:
    """Runs the work in a transaction; if COMMIT is not answered, finds out what became of it.

    The database may have committed it, may have dropped it, or may still be at it. It is asked whether the
    effect is there; if not, the work runs again, in a transaction that waits for the locks of the first one
    and then either takes its place or is refused by its effect. So it happens once, and the caller learns
    the one true outcome. Raises CommitStateUnknown when the database stays away for longer than a couple of
    seconds, or when what it says proves nothing because others have changed the same since.
    """
    try:
        with store.transaction() as tx:
            result = work(tx)
        return result
    except CommitStateUnknown as error:
        log.warning("asking what became of a commit", problem=str(error))
        unknown = error
    for pause in PAUSES_SECONDS:
        time.sleep(pause)
        with suppress(Unavailable):
            return _found_out(store, work, outcome, result)
    raise unknown


def _found_out(store: IcebergStore, work: Work[Result], outcome: Outcome[Result], result: Result) -> Result:
    if _has_happened(store, outcome, result):
        return result
    try:
        with store.transaction() as tx:
            return work(tx)
    except Unavailable:
        raise
    except TidemillError:
        # It may be refused by its own effect, when the first transaction ended only now.
        if _has_happened(store, outcome, result):
            return result
        raise


def _has_happened(store: IcebergStore, outcome: Outcome[Result], result: Result) -> bool:
    with store.transaction() as tx:
        happened = outcome(tx, result)
    if happened is None:
        raise CommitStateUnknown("Others have changed it since, and it can no longer be told")
    return happened


def have_happened(tx: IcebergTransaction, changes: Sequence[Change]) -> bool | None:
    """For changes of one transaction: what is known of one of them holds for all."""
    known = [_has_changed(tx, before, after) for before, after in changes]
    if True in known:
        return True
    return False if False in known or not known else None


def _has_changed(tx: IcebergTransaction, before: Entry | None, after: Entry) -> bool | None:
    """By the row, under its lock: a transaction that has not ended by then would be holding it.

    Every state has one successor, and a table's metadata names those before it: if the state before is
    among them and the state after is not, another commit was the successor.
    """
    found = tx.iceberg.lock_state(after.entry_id)
    if before is None:
        return found is not None
    if found is None:
        return None
    line = files_of(found)
    if after.metadata_location in line:
        return True
    return False if before.metadata_location in line else None


@dataclass(frozen=True, slots=True)
class _Unsettled:
    changes: Sequence[Change]
    files: Sequence[str]
    due_at: float


class UnsettledCommits:
    """Metadata files of commits with an unknown outcome, until it is known.

    They are remembered by this process alone, and not more than a thousand commits. What is forgotten, by
    a crash or because the list is full, is a file that nothing refers to, which does no harm.
    """

    def __init__(self, store: IcebergStore, files: MetadataFiles) -> None:
        self._store = store
        self._files = files
        self._waiting: deque[_Unsettled] = deque(maxlen=MAX_UNSETTLED)
        self._settling = Lock()

    def add(self, changes: Sequence[Change], files: Sequence[str]) -> None:
        self._waiting.append(_Unsettled(changes, tuple(files), time.monotonic() + SETTLE_AFTER_SECONDS))

    def settle(self) -> None:
        """Removes the files of commits that did not happen; raises Unavailable, and is to be called again."""
        if not self._waiting or not self._settling.acquire(blocking=False):
            return
        try:
            while self._waiting and self._waiting[0].due_at <= time.monotonic():
                self._settle(self._waiting[0])
                self._waiting.popleft()
        finally:
            self._settling.release()

    def _settle(self, commit: _Unsettled) -> None:
        with self._store.transaction() as tx:
            happened = have_happened(tx, commit.changes)
        if happened is False:
            for file in commit.files:
                self._files.remove(file)
        log.info("an unknown commit is settled", happened=happened, files=commit.files)
