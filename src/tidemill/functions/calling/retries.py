"""Rows gone over in rounds: all of them first, then those that failed and are worth another attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tidemill.functions.calling.attempts import Attempt
from tidemill.functions.calling.batches import Part, Positions, Rows, Sweeper
from tidemill.functions.failures import FailedRows, FunctionRaised
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy, RowFailure


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

    def __init__(
        self, sweepers: Sequence[Sweeper], policy: ErrorPolicy, sleep: Callable[[float], None]
    ) -> None:
        self._sweepers = sweepers
        self._policy = policy
        self._sleep = sleep
        self._threads = ThreadPoolExecutor(len(sweepers), "function") if len(sweepers) > 1 else None

    def run(self, rows: Rows) -> Rounds:
        """Raises FunctionRaised when a row failed for good and the policy is to fail then."""
        attempt = Attempt(1, self._policy)
        tries = np.zeros(len(rows), dtype=np.int64)
        rounds = [Round(np.arange(len(rows)), self._swept(rows, attempt))]
        lost: dict[int, RowFailure] = {}
        while len(again := self._judged(rounds[-1], rows, attempt, tries, lost)):
            self._sleep(attempt.pause_seconds)
            attempt = attempt.next()
            rounds.append(Round(again, self._swept(rows.take(again), attempt)))
        return Rounds(rounds, tuple(lost[place] for place in sorted(lost)))

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()

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

    def _swept(self, rows: Rows, attempt: Attempt) -> list[Part]:
        if self._threads is None or len(rows) < 2:
            return list(self._sweepers[0].sweep(rows, attempt))
        slices = _slices(rows, len(self._sweepers))
        sweepers = self._sweepers[: len(slices)]
        found = self._threads.map(lambda sweeper, some: list(sweeper.sweep(some, attempt)), sweepers, slices)
        return [part for parts in found for part in parts]


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


def _slices(rows: Rows, count: int) -> list[Rows]:
    ends = np.linspace(0, len(rows), min(count, len(rows)) + 1, dtype=np.int64)
    return [rows.slice(int(start), int(end - start)) for start, end in pairwise(ends)]


def _failure(rows: Rows, place: int, failed: FailedRows, tries: int) -> RowFailure:
    raised = failed.raised
    row_id = int(rows.row_ids[place])
    return RowFailure(row_id, raised.exception, raised.message, raised.traceback, tries)
