"""What a job would do and why, before it does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidemill.sdk.http import from_answer
from tidemill.sdk.names import dotted

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
        duration = _expected(self.expected_seconds)
        return (
            f"{head}computes {counted(self.rows, 'row')} in {counted(self.fragments, 'fragment')}{tasks}, "
            f"reuses {self.rows_reused:,}, publishes {counted(self.commits, 'commit')}{duration} "
            f"({self.reason})"
        )


@dataclass(frozen=True, slots=True)
class SourceChange:
    """What happened to a source since the view was last refreshed; None where it is unknown."""

    source: str
    from_version: int | None
    version: int
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None

    def __str__(self) -> str:
        since = "" if self.from_version in {None, self.version} else f"{self.from_version} to "
        changed = changes(self.inserted, self.updated, self.deleted)
        return f"{self.source}, version {since}{self.version}: {changed}"


@dataclass(frozen=True, slots=True)
class RefreshExplanation:
    """What a refresh would do: incrementally or in full, with which rows of its sources, and why.

    `keys` is the number of groups, join keys or partitions to recompute, if the view is refreshed by key.
    `expected_seconds` is known once it has been timed; `conflicts` are what is in its way.
    """

    view: str
    mode: str
    source_version: int
    rows: int
    rows_replaced: int
    rows_removed: int
    rows_reused: int
    reason: str
    keys: int | None = None
    sources: tuple[SourceChange, ...] = ()
    expected_seconds: float | None = None
    conflicts: tuple[str, ...] = ()

    @property
    def is_noop(self) -> bool:
        """Whether there is nothing to do."""
        return self.mode == NO_OP

    def __str__(self) -> str:
        changed = () if self.is_noop else self.sources
        return "\n".join(
            [
                self._summary(),
                *(f"Source: {source}" for source in changed),
                *(f"Conflict: {text}" for text in self.conflicts),
            ]
        )

    def _summary(self) -> str:
        head = f"Refresh of {self.view} to source version {self.source_version}: "
        if self.is_noop:
            return f"{head}nothing to do, {counted(self.rows_reused, 'row')} up to date ({self.reason})"
        keys = "" if self.keys is None else f" for {counted(self.keys, 'key')}"
        duration = _expected(self.expected_seconds)
        return (
            f"{head}{self.mode}, computes {counted(self.rows, 'source row')}{keys} "
            f"(replaces {self.rows_replaced:,}), removes {self.rows_removed:,}, "
            f"reuses {self.rows_reused:,}{duration} ({self.reason})"
        )


def backfill_explanation(table: str, column: str, body: Mapping[str, Any]) -> Explanation:
    conflicts = tuple(body.get("conflicts") or ())
    return from_answer(Explanation, body, table=table, column=column, conflicts=conflicts)


def refresh_explanation(view: str, body: Mapping[str, Any]) -> RefreshExplanation:
    sources = tuple(
        from_answer(SourceChange, change, source=object_name(change["source"]))
        for change in body.get("sources") or ()
    )
    conflicts = tuple(body.get("conflicts") or ())
    return from_answer(RefreshExplanation, body, view=view, sources=sources, conflicts=conflicts)


def object_name(given: str | Sequence[str]) -> str:
    """The name of a table or view, which a response has as levels or as one string."""
    return given if isinstance(given, str) else dotted(given)


def changes(inserted: int | None, updated: int | None, deleted: int | None) -> str:
    """`40 inserted, 5 updated`, as far as it is known."""
    found = {"inserted": inserted, "updated": updated, "deleted": deleted}
    if any(count is None for count in found.values()):
        return "changed rows unknown"
    known = [f"{count:,} {what}" for what, count in found.items() if count]
    return ", ".join(known) or "no row changed"


def counted(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _expected(seconds: float | None) -> str:
    return "" if seconds is None else f" in about {duration_text(seconds)}"


def duration_text(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.1g} s" if seconds < 1 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
