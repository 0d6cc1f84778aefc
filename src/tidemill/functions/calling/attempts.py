"""Which attempt it is at some rows, and what the error policy says about failures in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemill.functions.failures import CRASHED, Raised
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy

LONGEST_PAUSE: Final = 60.0
# Rows of a batch are tried together in the first two attempts; after the second they are known by themselves.
ATTEMPTS_TOGETHER: Final = 2


@dataclass(frozen=True)
class Attempt:
    """The first time, all rows are tried; later, those that failed and are worth it."""

    number: int
    policy: ErrorPolicy

    def is_final(self, raised: Raised) -> bool:
        """Whether a row that raised this is not tried again; a crash had its second chance before."""
        retry_on = self.policy.retry_on
        is_worth_it = raised.exception != CRASHED and (not retry_on or raised.is_one_of(retry_on))
        return self.number >= self.policy.attempts or not is_worth_it

    def stops(self, raised: Raised) -> bool:
        """Whether this failure ends it all, and other rows need not be looked at."""
        return self.policy.action is ErrorAction.FAIL and self.is_final(raised)

    def keeps_together(self, raised: Raised) -> bool:
        """Whether a batch that raised this is tried as a whole once more, before it is taken apart."""
        return self.number < ATTEMPTS_TOGETHER and not self.is_final(raised)

    @property
    def is_by_row(self) -> bool:
        return self.number > ATTEMPTS_TOGETHER

    @property
    def pause_seconds(self) -> float:
        """How long to wait after this attempt."""
        return float(min(self.policy.backoff_seconds * 2 ** min(self.number - 1, 32), LONGEST_PAUSE))

    def next(self) -> Attempt:
        return Attempt(self.number + 1, self.policy)
