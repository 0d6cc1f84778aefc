"""What a job would do and why, before it does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

# The mode of a refresh that finds everything up to date.
NO_OP: Final = "no_op"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a backfill would do: which rows it computes at which version, in how many commits, and why."""

    table: str
    column: str
    read_version: int
    rows: int
    rows_reused: int
    fragments: int
    commits: int
    reason: str

    @property
    def is_noop(self) -> bool:
        """Whether there is nothing to do."""
        return self.rows == 0

    def __str__(self) -> str:
        head = f"Backfill of {self.table}.{self.column} at version {self.read_version}: "
        if self.is_noop:
            return f"{head}nothing to do, {counted(self.rows_reused, 'row')} up to date ({self.reason})"
        return (
            f"{head}computes {counted(self.rows, 'row')} in {counted(self.fragments, 'fragment')}, "
            f"reuses {self.rows_reused:,}, publishes {counted(self.commits, 'commit')} ({self.reason})"
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
