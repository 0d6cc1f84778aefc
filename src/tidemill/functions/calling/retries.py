"""Rows gone over in rounds: all of them first, then those that failed and are worth another attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from tidemill.functions.calling.batches import Part, Positions, Rows
from tidemill.functions.failures import CRASHED, FailedRows, FunctionRaised, Raised
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy, RowFailure

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

    def is_ended_by(self, part: Part) -> bool:
        return any(self.stops(failed.raised) for failed in part.failures)

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


class Sweeper(Protocol):
    """Goes over rows with a function. It stops early only after a part with a failure that ends it all."""

    def sweep(self, rows: Rows, attempt: Attempt) -> Iterator[Part]: ...


@dataclass(frozen=True)
class Round:
    """The parts of one attempt; `positions` are those of its rows among all rows."""

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
class Rounds:
    """All attempts at some rows, and the rows that failed in the end."""

    rounds: Sequence[Round]
    failures: tuple[RowFailure, ...]


class Runner:
    """Goes over rows as often as the policy says, with each sweeper in a thread of its own."""

    def __init__(self, sweeper: Sweeper, policy: ErrorPolicy, sleep: Callable[[float], None]) -> None:
        self._sweeper = sweeper
        self._policy = policy
        self._sleep = sleep

    def run(self, rows: Rows) -> Rounds:
        """Raises FunctionRaised when a row failed for good and the policy is to fail then."""
        attempt = Attempt(1, self._policy)
        tries = np.zeros(len(rows), dtype=np.int64)
        rounds = [Round(np.arange(len(rows)), list(self._sweeper.sweep(rows, attempt)))]
        lost: dict[int, RowFailure] = {}
        while len(again := self._judged(rounds[-1], rows, attempt, tries, lost)):
            self._sleep(attempt.pause_seconds)
            attempt = attempt.next()
            rounds.append(Round(again, list(self._sweeper.sweep(rows.take(again), attempt))))
        return Rounds(rounds, tuple(lost[place] for place in sorted(lost)))

    def _judged(
        self, last: Round, rows: Rows, attempt: Attempt, tries: Positions, lost: dict[int, RowFailure]
    ) -> Positions:
        """The rows for another attempt; the others that failed are lost."""
        again = [np.empty(0, dtype=np.int64)]
        for places, failed in last.failures():
            tries[places] += failed.tries
            if not attempt.is_final(failed.raised):
                again.append(places)
                continue
            found = {int(place): _failure(rows, int(place), failed, int(tries[place])) for place in places}
            if self._policy.action is ErrorAction.FAIL:
                raise FunctionRaised(next(iter(found.values())))
            lost |= found
        return np.concatenate(again)


def combined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> list[pa.Array]:
    """Their columns one below the other, in the types that are wanted."""
    if len(batches) == 1:
        return [_as(batches[0].column(number), field.type) for number, field in enumerate(schema)]
    return [
        pa.concat_arrays(
            [pa.nulls(0, field.type), *(_as(batch.column(number), field.type) for batch in batches)]
        )
        for number, field in enumerate(schema)
    ]


def _as(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A child may not know the extension types that the task knows; then it sends what they are stored as."""
    return array if array.type.equals(wanted) else array.cast(wanted)


def _failure(rows: Rows, place: int, failed: FailedRows, tries: int) -> RowFailure:
    raised = failed.raised
    row_id = int(rows.row_ids[place])
    return RowFailure(row_id, raised.exception, raised.message, raised.traceback, tries)
