"""Determines the outcome of transactions whose COMMIT was sent but never answered.

When the connection breaks during COMMIT, the database may have committed the transaction, rolled it back, or
may still be working on it. Reporting failure would make clients delete files of a committed table; reporting
success would acknowledge a commit that may be lost. `run_transaction` therefore looks for the effect of the
transaction and repeats the work if there is none.

If the database stays unreachable for about two seconds, the caller gets CommitStateUnknown and the commit
stays in doubt. Its metadata files must not be removed, because a row may refer to them. `InDoubtCommits`
remembers them and removes those that turn out to be unused, once the database has ended the transaction.
"""

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
from tidemill.iceberg.operations.purges import metadata_files_of
from tidemill.iceberg.ports import IcebergStore, IcebergTransaction

# By then PostgreSQL has ended every transaction of a lost connection: see the timeouts in store/engine.py.
RESOLVE_AFTER_SECONDS: Final = 60.0
MAX_IN_DOUBT: Final = 1000

log = structlog.get_logger("tidemill.iceberg")

Result = TypeVar("Result")
Work: TypeAlias = Callable[[IcebergTransaction], Result]
OutcomeCheck: TypeAlias = Callable[[IcebergTransaction, Result], bool | None]
"""Whether the work that returned this result was committed; None if that can no longer be determined."""

Transition: TypeAlias = tuple[Entry | None, Entry]
"""An entry before and after a commit; None before its creation."""


def run_transaction(store: IcebergStore, work: Work[Result], is_committed: OutcomeCheck[Result]) -> Result:
    """Runs the work in a transaction; if COMMIT is not answered, determines whether it was committed.

    If the effect is not visible, the work runs again in a transaction that waits for the locks of the first
    one. It then either replaces the first one or is refused because of its effect, so the work happens once
    and the caller learns the true outcome. Raises CommitStateUnknown when the database stays unreachable for
    more than a couple of seconds, or when later changes by others hide the outcome.
    """
    try:
        with store.transaction() as tx:
            result = work(tx)
        return result
    except CommitStateUnknown as error:
        log.warning("determining the outcome of an unanswered commit", problem=str(error))
        unknown = error
    for pause in PAUSES_SECONDS:
        time.sleep(pause)
        with suppress(Unavailable):
            return _resolve_outcome(store, work, is_committed, result)
    raise unknown


def _resolve_outcome(
    store: IcebergStore, work: Work[Result], is_committed: OutcomeCheck[Result], result: Result
) -> Result:
    if _is_committed(store, is_committed, result):
        return result
    try:
        with store.transaction() as tx:
            return work(tx)
    except Unavailable:
        raise
    except TidemillError:
        # The first transaction may have committed only now, so that its own effect refuses the second.
        if _is_committed(store, is_committed, result):
            return result
        raise


def _is_committed(store: IcebergStore, is_committed: OutcomeCheck[Result], result: Result) -> bool:
    with store.transaction() as tx:
        committed = is_committed(tx, result)
    if committed is None:
        raise CommitStateUnknown(
            "The outcome of the commit is unknown: others have changed the same entry since"
        )
    return committed


def are_committed(tx: IcebergTransaction, transitions: Sequence[Transition]) -> bool | None:
    """Whether one transaction made these transitions; if the answer is known for one, it holds for all."""
    known = [_is_transition_committed(tx, before, after) for before, after in transitions]
    if True in known:
        return True
    return False if False in known or not known else None


def _is_transition_committed(tx: IcebergTransaction, before: Entry | None, after: Entry) -> bool | None:
    """Locks the row first: a transaction that has not ended yet would still hold that lock.

    Every state has exactly one successor, and a table's metadata lists the files of previous states. If the
    history contains `before` but not `after`, another commit succeeded `before`.
    """
    state = tx.iceberg.lock_state(after.entry_id)
    if before is None:
        return state is not None
    if state is None:
        return None
    history = metadata_files_of(state)
    if after.metadata_location in history:
        return True
    return False if before.metadata_location in history else None


@dataclass(frozen=True, slots=True)
class _InDoubtCommit:
    transitions: Sequence[Transition]
    files: Sequence[str]
    due_at: float


class InDoubtCommits:
    """Metadata files of commits with an unknown outcome, until the outcome is known.

    Only this process remembers them, and at most MAX_IN_DOUBT commits. When it forgets one, because of a
    crash or a full list, a file that nothing refers to may stay behind, which does no harm.
    """

    def __init__(self, store: IcebergStore, files: MetadataFiles) -> None:
        self._store = store
        self._files = files
        self._waiting: deque[_InDoubtCommit] = deque(maxlen=MAX_IN_DOUBT)
        self._resolving = Lock()

    def add(self, transitions: Sequence[Transition], files: Sequence[str]) -> None:
        self._waiting.append(
            _InDoubtCommit(transitions, tuple(files), time.monotonic() + RESOLVE_AFTER_SECONDS)
        )

    def resolve(self) -> None:
        """Removes the files of commits that did not happen. Raises Unavailable; call it again later."""
        if not self._waiting or not self._resolving.acquire(blocking=False):
            return
        try:
            while self._waiting and self._waiting[0].due_at <= time.monotonic():
                self._resolve(self._waiting[0])
                self._waiting.popleft()
        finally:
            self._resolving.release()

    def _resolve(self, commit: _InDoubtCommit) -> None:
        with self._store.transaction() as tx:
            committed = are_committed(tx, commit.transitions)
        if committed is False:
            for file in commit.files:
                self._files.remove(file)
        log.info("determined the outcome of an in-doubt commit", committed=committed, files=commit.files)
