"""The retry loop: runs all rows, then again those that failed and that the error policy retries.

The rows of a vectorized function fail together. If the policy allows a second attempt, that repeats the
whole batch, as the cause may be transient. Otherwise the batch is bisected to find the rows at fault,
and from the third attempt on each row is called alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from tidemill.functions.calling.batches import Part, Positions, Rows
from tidemill.functions.failures import CRASHED, FailedRows, FunctionRaised, Raised
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy, RowFailure

MAX_PAUSE_SECONDS: Final = 60.0
WHOLE_BATCH_ATTEMPTS: Final = 2


@dataclass(frozen=True)
class Attempt:
    """The number of an attempt, from 1, and what the error policy says about failures in it."""

    number: int
    policy: ErrorPolicy

    def is_final(self, raised: Raised) -> bool:
        """Whether a row that raised this is not retried. A crash never is: supervision has tried it twice."""
        retry_on = self.policy.retry_on
        is_retryable = raised.exception != CRASHED and (not retry_on or raised.is_one_of(retry_on))
        return self.number >= self.policy.attempts or not is_retryable

    def is_fatal(self, raised: Raised) -> bool:
        """Whether this failure fails the job, so that other rows need not be computed."""
        return self.policy.action is ErrorAction.FAIL and self.is_final(raised)

    def is_stopped_by(self, part: Part) -> bool:
        return any(self.is_fatal(failed.raised) for failed in part.failures)

    def retries_whole_batch(self, raised: Raised) -> bool:
        """Whether a batch that raised this is retried as a whole before it is bisected."""
        return self.number < WHOLE_BATCH_ATTEMPTS and not self.is_final(raised)

    @property
    def is_row_by_row(self) -> bool:
        return self.number > WHOLE_BATCH_ATTEMPTS

    @property
    def pause_seconds(self) -> float:
        """The pause after this attempt."""
        return float(min(self.policy.backoff_seconds * 2 ** min(self.number - 1, 32), MAX_PAUSE_SECONDS))

    def next(self) -> Attempt:
        return Attempt(self.number + 1, self.policy)


class Executor(Protocol):
    """Calls a function with rows and yields the results in order; stops early only after a fatal failure."""

    def run(self, rows: Rows, attempt: Attempt) -> Iterator[Part]: ...


@dataclass(frozen=True)
class AttemptResult:
    """The parts of one attempt; `positions` are those of its rows in the whole batch."""

    positions: Positions
    parts: Sequence[Part]

    def failures(self) -> Iterator[tuple[Positions, FailedRows]]:
        start = 0
        for part in self.parts:
            for failed in part.failures:
                first = start + failed.start
                yield self.positions[first : first + failed.rows], failed
            start += part.rows


@dataclass(frozen=True)
class RunResult:
    """All attempts at a batch, and the rows that failed for good."""

    attempts: Sequence[AttemptResult]
    failures: tuple[RowFailure, ...]


class RetryLoop:
    """Runs rows on an executor as often as the error policy allows."""

    def __init__(self, executor: Executor, policy: ErrorPolicy, sleep: Callable[[float], None]) -> None:
        self._executor = executor
        self._policy = policy
        self._sleep = sleep

    def run(self, rows: Rows) -> RunResult:
        """Raises FunctionRaised when a row fails for good and the policy is not to skip it."""
        attempt = Attempt(1, self._policy)
        tries = np.zeros(len(rows), dtype=np.int64)
        results = [AttemptResult(np.arange(len(rows)), list(self._executor.run(rows, attempt)))]
        failures: dict[int, RowFailure] = {}
        while len(again := self._to_retry(results[-1], rows, attempt, tries, failures)):
            self._sleep(attempt.pause_seconds)
            attempt = attempt.next()
            results.append(AttemptResult(again, list(self._executor.run(rows.take(again), attempt))))
        return RunResult(results, tuple(failures[position] for position in sorted(failures)))

    def _to_retry(
        self,
        result: AttemptResult,
        rows: Rows,
        attempt: Attempt,
        tries: Positions,
        failures: dict[int, RowFailure],
    ) -> Positions:
        """Returns the rows for another attempt; adds the rows that failed for good to `failures`."""
        again = [np.empty(0, dtype=np.int64)]
        for positions, failed in result.failures():
            tries[positions] += failed.tries
            if not attempt.is_final(failed.raised):
                again.append(positions)
                continue
            found = {int(at): _failure(rows, int(at), failed, int(tries[at])) for at in positions}
            if self._policy.action is ErrorAction.FAIL:
                raise FunctionRaised(next(iter(found.values())))
            failures |= found
        return np.concatenate(again)


def _failure(rows: Rows, position: int, failed: FailedRows, tries: int) -> RowFailure:
    raised = failed.raised
    row_id = int(rows.row_ids[position])
    return RowFailure(row_id, raised.exception, raised.message, raised.traceback, tries)
