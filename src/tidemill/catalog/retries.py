"""Retries transactions after a deadlock, and when the outcome of COMMIT is unknown."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Final, TypeVar

import structlog

from tidemill.catalog.nonblocking import may_block
from tidemill.errors import CommitStateUnknown, Deadlock, Unavailable

ATTEMPTS: Final = 5
LONGEST_PAUSE_SECONDS: Final = 0.1
PAUSES_SECONDS: Final = (0.02, 0.08, 0.3, 0.6, 1.0)
"""Pauses between attempts after a COMMIT with an unknown outcome: two seconds in total."""

ResultT = TypeVar("ResultT")
TransactionT = TypeVar("TransactionT")

log = structlog.get_logger("tidemill.catalog")


def retry_deadlocks(run: Callable[[], ResultT]) -> ResultT:
    """Runs one whole transaction, which has no effects outside it. Raises Deadlock after the last attempt.

    Deadlocks are rare, because all transactions take their locks in the same order: see `SqlTransaction`.
    They still happen, for example when a table is named or a job starts after the locks were taken.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return run()
        except Deadlock as error:
            log.warning("retrying a transaction after a deadlock", attempt=attempt, problem=str(error))
            time.sleep(random.uniform(0, LONGEST_PAUSE_SECONDS))
    return run()


def run_repeatable(
    transaction: Callable[[], AbstractContextManager[TransactionT]], work: Callable[[TransactionT], ResultT]
) -> ResultT:
    """Runs work in a transaction of a store; repeats it after a deadlock or an unknown outcome.

    `work` must be idempotent. Raises CommitStateUnknown if the database does not respond within about two
    seconds.
    """

    def run() -> ResultT:
        with transaction() as tx:
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
