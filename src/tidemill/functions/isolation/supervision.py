"""Functions called in a child: when it dies, another one goes on, around the row at fault."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidemill.functions.calling.batches import Definition, NoValues, Part, Rows, failed_part
from tidemill.functions.calling.retries import Attempt
from tidemill.functions.failures import CRASHED, FailedRows, Raised
from tidemill.functions.isolation.child_client import Child, ChildLost
from tidemill.functions.isolation.pool import POOL
from tidemill.functions.isolation.zygote_client import Setup

CRASH_TRIES: Final = 2


@dataclass(frozen=True)
class Span:
    """Neighbouring rows."""

    start: int
    rows: int

    @property
    def end(self) -> int:
        return self.start + self.rows

    def is_within(self, other: Span) -> bool:
        return self.rows > 0 and other.start <= self.start and self.end <= other.end


# What is left to do, the last first: rows to go over, and rows whose failure is known by now.
Work: TypeAlias = list[Span | FailedRows]


class ChildSweeper:
    """Goes over rows with the function open in a child process."""

    def __init__(
        self, definition: Definition, setup: Setup, memory_bytes: int | None, no_values: NoValues
    ) -> None:
        self._definition = definition
        self._setup = setup
        self._memory_bytes = memory_bytes
        self._no_values = no_values
        self._child: Child | None = None

    def sweep(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        work: Work = [Span(0, len(rows))] if len(rows) else []
        crashed: set[Span] = set()
        is_over = False
        while work and not is_over:
            item = work.pop()
            if isinstance(item, Span):
                is_over = yield from self._swept(rows, item, attempt, work, crashed)
                continue
            part = failed_part(item, self._no_values)
            yield part
            is_over = attempt.is_ended_by(part)

    def close(self) -> None:
        if self._child is None:
            return
        if self._child.is_idle:
            POOL.give_back(self._child)
        else:
            POOL.forget(self._child)
            self._child.end()
        self._child = None

    def _swept(
        self, rows: Rows, span: Span, attempt: Attempt, work: Work, crashed: set[Span]
    ) -> Generator[Part, None, bool]:
        """Leaves in `work` what a child that was lost did not get to; says whether a failure ends it all."""
        done, is_over = 0, False
        child = self._started()
        try:
            for part in child.sweep(rows.slice(span.start, span.rows), attempt):
                done += part.rows
                is_over = is_over or attempt.is_ended_by(part)
                yield part
        except ChildLost as lost:
            POOL.forget(child)
            self._child = None
            rest = Span(span.start + done, span.rows - done)
            at = Span(span.start + lost.at.start, lost.at.rows)
            work += _left(rest, at if at.is_within(rest) else rest, lost.raised, attempt, crashed)
        return is_over

    def _started(self) -> Child:
        if self._child is None:
            self._child = POOL.take(self._definition, self._setup, self._memory_bytes)
        return self._child


def _left(rest: Span, at: Span, raised: Raised, attempt: Attempt, crashed: set[Span]) -> Work:
    """What there is to do when a child was lost at some rows."""
    if raised.exception == CRASHED and _gets_second_chance(at, crashed):
        crashed.add(at)
        return [rest] if rest.rows else []
    middle: Work
    if at.rows == 1 or attempt.keeps_together(raised):
        middle = [FailedRows(at.start, at.rows, raised, CRASH_TRIES if at in crashed else 1)]
    else:
        half = at.rows // 2
        middle = [Span(at.start + half, at.rows - half), Span(at.start, half)]
    before = Span(rest.start, at.start - rest.start)
    after = Span(at.end, rest.end - at.end)
    return [after] * bool(after.rows) + middle + [before] * bool(before.rows)


def _gets_second_chance(at: Span, crashed: set[Span]) -> bool:
    """A row does, and the batch as a whole; parts of a batch do not, or it would take twice as long."""
    return at not in crashed and (at.rows == 1 or all(span.rows == 1 for span in crashed))
