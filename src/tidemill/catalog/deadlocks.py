"""Retries a transaction that the database undid to end a deadlock."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from tidemill.errors import Deadlock

ATTEMPTS: Final = 5
LONGEST_PAUSE_SECONDS: Final = 0.1

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
