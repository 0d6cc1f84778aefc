"""Runs transactions again: after a deadlock, and when the answer to COMMIT is missing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import structlog

from tidemill.catalog.nonblocking import may_block
from tidemill.catalog.ports import CatalogStore, CatalogTransaction
from tidemill.errors import CommitStateUnknown, Deadlock, Unavailable

ATTEMPTS: Final = 5
LONGEST_PAUSE_SECONDS: Final = 0.1
PAUSES_SECONDS: Final = (0.02, 0.08, 0.3, 0.6, 1.0)
"""Between attempts to reach a database whose answer to COMMIT is missing: two seconds in all."""

ResultT = TypeVar("ResultT")

log = structlog.get_logger("tidemill.catalog")


def retry_deadlocks(run: Callable[[], ResultT]) -> ResultT:
    """`run` is one whole transaction and does nothing outside it. Raises Deadlock after the last attempt.

    Rare, because transactions take their locks in one order: see `SqlTransaction`. The order cannot rule out
    every deadlock: a table may get its name, or a job start, after the locks were taken.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return run()
        except Deadlock as error:
            log.warning("retrying a transaction after a deadlock", attempt=attempt, problem=str(error))
            time.sleep(random.uniform(0, LONGEST_PAUSE_SECONDS))
    return run()


def run_repeatable(store: CatalogStore, work: Callable[[CatalogTransaction], ResultT]) -> ResultT:
    """Runs work in a transaction: again after a deadlock, and until it is known whether it was done.

    Doing it twice has to be the same as doing it once. Raises CommitStateUnknown when the database does not
    come back for a couple of seconds.
    """

    def run() -> ResultT:
        with store.transaction() as tx:
            return work(tx)

    try:
        return retry_deadlocks(run)
    except CommitStateUnknown as error:
        unknown = error
    may_block()
    for pause in PAUSES_SECONDS:
        time.sleep(pause)
        with suppress(Unavailable):
            return retry_deadlocks(run)
    raise unknown
