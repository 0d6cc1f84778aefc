"""Detects commit conflicts and backs off before the next attempt."""

from __future__ import annotations

import random
import time
from typing import Final

from tidemill.lance.datasets import is_retryable

FIRST_BACKOFF_SECONDS: Final = 0.005
MAX_BACKOFF_SECONDS: Final = 0.5


def is_conflict(error: Exception) -> bool:
    """Whether another writer came first, so that the change may succeed on the newest version."""
    return is_retryable(error) or "Commit conflict" in str(error)


def backoff(attempt: int) -> None:
    """Sleeps for a random time that grows with each attempt."""
    time.sleep(random.uniform(0, min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2**attempt)))
