"""What a job would do and why, before it does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

# The mode of a refresh that finds everything up to date.
NO_OP: Final = "no_op"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a backfill would do: which rows it computes at which version, in how many commits, and why.

    `expected_seconds` is known once the function has been timed; `conflicts` are jobs and columns that are in
    its way.
    """

    table: str
    column: str
    read_version: int
    rows: int
    rows_reused: int
    fragments: int
    commits: int
    reason: str
    tasks: int = 0
    expected_seconds: float | None = None
    conflicts: tuple[str, ...] = ()

    @property
    def is_noop(self) -> bool:
        """Whether there is nothing to do."""
        return self.rows == 0

    def __str__(self) -> str:
        return "\n".join([self._summary(), *(f"Conflict: {text}" for text in self.conflicts)])

    def _summary(self) -> str:
        head = f"Backfill of {self.table}.{self.column} at version {self.read_version}: "
        if self.is_noop:
            return f"{head}nothing to do, {counted(self.rows_reused, 'row')} up to date ({self.reason})"
        tasks = f" and {counted(self.tasks, 'task')}" if self.tasks else ""
        duration = "" if self.expected_seconds is None else f" in about {lasting(self.expected_seconds)}"
        return (
            f"{head}computes {counted(self.rows, 'row')} in {counted(self.fragments, 'fragment')}{tasks}, "
            f"reuses {self.rows_reused:,}, publishes {counted(self.commits, 'commit')}{duration} "
            f"({self.reason})"
        )


@dataclass(frozen=True, slots=True)
class RefreshExplanation:
    """What a refresh would do: incrementally or in full, with which rows of the source, and why."""

    view: str
    mode: str
    source_version: int
    rows: int
    rows_replaced: int
    rows_removed: int
    rows_reused: int
    reason: str

    @property
    def is_noop(self) -> bool:
        """Whether there is nothing to do."""
        return self.mode == NO_OP

    def __str__(self) -> str:
        head = f"Refresh of {self.view} to source version {self.source_version}: "
        if self.is_noop:
            return f"{head}nothing to do, {counted(self.rows_reused, 'row')} up to date ({self.reason})"
        return (
            f"{head}{self.mode}, computes {counted(self.rows, 'source row')} "
            f"(replaces {self.rows_replaced:,}), removes {self.rows_removed:,}, "
            f"reuses {self.rows_reused:,} ({self.reason})"
        )


def backfill_explanation(table: str, column: str, body: Mapping[str, Any]) -> Explanation:
    return Explanation(
        table=table,
        column=column,
        read_version=body["read_version"],
        rows=body["rows"],
        rows_reused=body["rows_reused"],
        fragments=body["fragments"],
        commits=body["commits"],
        reason=body["reason"],
        tasks=body.get("tasks", 0),
        expected_seconds=body.get("expected_seconds"),
        conflicts=tuple(body.get("conflicts") or ()),
    )


def refresh_explanation(view: str, body: Mapping[str, Any]) -> RefreshExplanation:
    return RefreshExplanation(
        view=view,
        mode=body["mode"],
        source_version=body["source_version"],
        rows=body["rows"],
        rows_replaced=body["rows_replaced"],
        rows_removed=body["rows_removed"],
        rows_reused=body["rows_reused"],
        reason=body["reason"],
    )


def counted(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def lasting(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.1g} s" if seconds < 1 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
