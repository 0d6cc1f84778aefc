"""The executor that calls functions in child processes and survives their death.

A child that dies or hangs is replaced, and the next one continues after the parts that have arrived. The
progress of the lost child names the rows of its last call. After a crash they get a second chance, as
something else may have killed the process. Then a single row counts as failed, and a batch is bisected.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidemill.functions.calling.batches import BoundFunction, NoValues, Part, Rows, failed_part
from tidemill.functions.calling.retries import Attempt
from tidemill.functions.failures import CRASHED, FailedRows, Raised
from tidemill.functions.isolation.clients import ChildClient, ChildLost, ZygoteSpec
from tidemill.functions.isolation.pool import POOL

CRASH_TRIES: Final = 2


@dataclass(frozen=True)
class Span:
    """Consecutive rows."""

    start: int
    rows: int

    @property
    def end(self) -> int:
        return self.start + self.rows

    def is_within(self, other: Span) -> bool:
        return self.rows > 0 and other.start <= self.start and self.end <= other.end


# A stack of what is left: rows to run, and rows that are known to fail.
Work: TypeAlias = list[Span | FailedRows]


class ChildExecutor:
    """Runs rows in a child process from the pool."""

    def __init__(
        self,
        bound: BoundFunction,
        spec: ZygoteSpec,
        memory_bytes: int | None,
        no_values: NoValues,
        call_seconds: float | None = None,
    ) -> None:
        self._bound = bound
        self._spec = spec
        self._memory_bytes = memory_bytes
        self._no_values = no_values
        self._call_seconds = call_seconds
        self._child: ChildClient | None = None

    def run(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        work: Work = [Span(0, len(rows))] if len(rows) else []
        crashed: set[Span] = set()
        is_over = False
        while work and not is_over:
            item = work.pop()
            if isinstance(item, Span):
                is_over = yield from self._run_span(rows, item, attempt, work, crashed)
                continue
            part = failed_part(item, self._no_values)
            yield part
            is_over = attempt.is_stopped_by(part)

    def close(self) -> None:
        if self._child is None:
            return
        if self._child.is_idle:
            POOL.release(self._child)
        else:
            POOL.discard(self._child)
            self._child.end()
        self._child = None

    def _run_span(
        self, rows: Rows, span: Span, attempt: Attempt, work: Work, crashed: set[Span]
    ) -> Generator[Part, None, bool]:
        """Returns whether a failure was fatal; pushes what a lost child did not finish on `work`."""
        done, is_over = 0, False
        child = self._acquire()
        try:
            for part in child.run(rows.slice(span.start, span.rows), attempt):
                done += part.rows
                is_over = is_over or attempt.is_stopped_by(part)
                yield part
        except ChildLost as lost:
            POOL.discard(child)
            self._child = None
            rest = Span(span.start + done, span.rows - done)
            at = Span(span.start + lost.at.start, lost.at.rows)
            work += _work_left(rest, at if at.is_within(rest) else rest, lost.raised, attempt, crashed)
        return is_over

    def _acquire(self) -> ChildClient:
        if self._child is None:
            self._child = POOL.acquire(self._bound, self._spec, self._memory_bytes)
            self._child.call_seconds = self._bound.function.timeout_seconds or self._call_seconds
        return self._child


def _work_left(rest: Span, at: Span, raised: Raised, attempt: Attempt, crashed: set[Span]) -> Work:
    """The work left when a child was lost at the rows `at`, while `rest` had no result yet."""
    if raised.exception == CRASHED and _gets_second_chance(at, crashed):
        crashed.add(at)
        return [rest] if rest.rows else []
    middle: Work
    if at.rows == 1 or attempt.retries_whole_batch(raised):
        middle = [FailedRows(at.start, at.rows, raised, CRASH_TRIES if at in crashed else 1)]
    else:
        half = at.rows // 2
        middle = [Span(at.start + half, at.rows - half), Span(at.start, half)]
    before = Span(rest.start, at.start - rest.start)
    after = Span(at.end, rest.end - at.end)
    return [after] * bool(after.rows) + middle + [before] * bool(before.rows)


def _gets_second_chance(at: Span, crashed: set[Span]) -> bool:
    """Single rows do, and the first batch that crashes; its halves do not, which would double the time."""
    return at not in crashed and (at.rows == 1 or all(span.rows == 1 for span in crashed))
