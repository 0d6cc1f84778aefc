"""Other writers who came first: how to tell, and how long to step back before the next attempt."""

from __future__ import annotations

import random
import time
from typing import Final

from tidemill.lance.datasets import is_retryable

FIRST_BACKOFF_SECONDS: Final = 0.005
MAX_BACKOFF_SECONDS: Final = 0.5


def is_conflict(error: Exception) -> bool:
    """Whether another writer came first, so that the same change may succeed on what is there now."""
    return is_retryable(error) or "Commit conflict" in str(error)


def backoff(attempt: int) -> None:
    """Longer from attempt to attempt, and never the same for two writers."""
    time.sleep(random.uniform(0, min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2**attempt)))
