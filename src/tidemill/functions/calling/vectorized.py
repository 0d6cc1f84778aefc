"""The two ways to go over rows with a function: one by one, or together and taken apart when that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, Final, Protocol

import pyarrow as pa

from tidemill.functions.calling.attempts import Attempt
from tidemill.functions.calling.batches import NoValues, Part, Rows, failed_part
from tidemill.functions.calling.limits import ROWS, START, Marks
from tidemill.functions.failures import RAISED, FailedRows, described

# What a child has computed for longer than this is handed on, so that a crash cannot take it along.
FLUSH_SECONDS: Final = 0.1


class Collector(Protocol):
    """Gathers what calls with single rows return."""

    def add(self, result: Any) -> None: ...

    def add_nothing(self) -> None: ...

    def take(self, failures: list[FailedRows]) -> Part:
        """Everything since the last time; results that do not fit their type are failures too."""
        ...


class OneByOne:
    """Calls a function row by row."""

    def __init__(self, call: Callable[..., Any], collector: Collector, marks: Marks) -> None:
        self._call = call
        self._collector = collector
        self._marks = marks

    def sweep(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        values = enumerate(rows.values())
        is_over = False
        while not is_over:
            failures, is_over = self._until_flush(values, attempt)
            part = self._collector.take(failures)
            if part.rows:
                yield part
            is_over = is_over or part.stops(attempt)

    def _until_flush(
        self, values: Iterator[tuple[int, tuple[Any, ...]]], attempt: Attempt
    ) -> tuple[list[FailedRows], bool]:
        """Also ends when there are no more rows, or need not be."""
        call, collector, slots = self._call, self._collector, self._marks.slots
        failures: list[FailedRows] = []
        flush_at, first, is_over = monotonic() + FLUSH_SECONDS, None, True
        for position, row in values:
            slots[START], slots[ROWS] = position, 1
            first = position if first is None else first
            try:
                collector.add(call(*row))
            except RAISED as error:
                collector.add_nothing()
                failures.append(FailedRows(position - first, 1, described(error)))
            if monotonic() >= flush_at or (failures and attempt.stops(failures[-1].raised)):
                is_over = False
                break
        self._marks.end()
        return failures, is_over


class Together:
    """Calls a function with all rows at once; when that fails, with halves, down to the row at fault."""

    def __init__(self, call: Callable[[Rows], pa.RecordBatch], no_values: NoValues, marks: Marks) -> None:
        self._call = call
        self._no_values = no_values
        self._marks = marks

    def sweep(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        spans = _spans(len(rows), attempt)
        while spans:
            start, count = spans.pop()
            part = self._tried(rows, start, count, attempt)
            if part is None:
                half = count // 2
                spans += [(start + half, count - half), (start, half)]
                continue
            yield part
            if part.stops(attempt):
                return

    def _tried(self, rows: Rows, start: int, count: int, attempt: Attempt) -> Part | None:
        self._marks.begin(start, count)
        try:
            return Part(count, self._call(rows.slice(start, count)))
        except RAISED as error:
            raised = described(error)
        finally:
            self._marks.end()
        is_taken_apart = count > 1 and not attempt.keeps_together(raised)
        return None if is_taken_apart else failed_part(FailedRows(0, count, raised), self._no_values)


def _spans(rows: int, attempt: Attempt) -> list[tuple[int, int]]:
    """The first is the last in the list."""
    if attempt.is_by_row:
        return [(start, 1) for start in range(rows - 1, -1, -1)]
    return [(0, rows)] if rows else []
