"""Rows on which functions failed, and what is to be done about them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from pyroaring import BitMap64


class ErrorAction(StrEnum):
    """What a row that failed for good leads to."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """A row is tried `attempts` times; then the job fails, or the row is skipped and left null.

    `retry_on` are names of exceptions worth another attempt; none means any. The pause before the second
    attempt is `backoff_seconds` and doubles from then on. More skipped rows than the limits end the job.
    """

    action: ErrorAction = ErrorAction.FAIL
    attempts: int = 1
    backoff_seconds: float = 1.0
    retry_on: tuple[str, ...] = ()
    max_skipped: int | None = None
    max_skipped_fraction: float | None = None

    def allowed_skips(self, rows: int) -> int | None:
        """How many of so many rows may be skipped; None means any number."""
        limits = [] if self.max_skipped is None else [self.max_skipped]
        if self.max_skipped_fraction is not None:
            limits.append(int(self.max_skipped_fraction * rows))
        return min(limits) if limits else None


FAIL_AT_ONCE: Final = ErrorPolicy()


@dataclass(frozen=True)
class RowFailure:
    """What a function raised, and on which row; on none if it could not even be opened."""

    row_id: int | None
    exception: str
    message: str
    traceback: str
    attempts: int = 1


def is_on_row_of(failure: RowFailure, rows: BitMap64) -> bool:
    return failure.row_id is not None and failure.row_id in rows


@dataclass(frozen=True)
class RowError:
    """An entry of the error ledger: a row without a value because the function failed on it.

    A row that was not skipped ended its job; it will be computed by the next one anyway.
    """

    subject_id: UUID
    digest: str
    job_id: str
    failure: RowFailure
    is_skipped: bool
    at: datetime | None = None
