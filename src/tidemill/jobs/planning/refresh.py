"""Decides how a view is refreshed: which rows or keys are made anew, or everything, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pyroaring import BitMap64

from tidemill.jobs.model.coverage import Changes, Coverage
from tidemill.jobs.model.derived import RefreshPolicy
from tidemill.jobs.model.plans import (
    FragmentWork,
    RefreshMode,
    RefreshPlan,
    RowLocations,
    SourceChange,
    TableSnapshot,
)
from tidemill.jobs.model.sql import SqlPlan

# With more of the rows changed, making everything anew is no slower than looking for those that did.
MOST_CHANGED: Final = 0.3
# With fewer rows than that it makes no difference.
FEWEST_ROWS: Final = 10_000


@dataclass(frozen=True)
class SourceProgress:
    """What is known about one source of a view when a refresh begins.

    `located` are its rows, as far as the view has to do with them; None when nothing has happened to it.
    """

    levels: tuple[str, ...]
    snapshot: TableSnapshot
    coverage: Coverage
    changes: Changes
    located: RowLocations | None

    @property
    def is_new(self) -> bool:
        """Whether nothing has ever been made from it."""
        return not self.coverage.revision

    @property
    def before(self) -> BitMap64:
        return self.coverage.rows

    @cached_property
    def live(self) -> BitMap64:
        return self.before if self.located is None else self.located.all_rows()

    @cached_property
    def inserted(self) -> BitMap64:
        return self.live - self.before

    @cached_property
    def deleted(self) -> BitMap64:
        return self.before - self.live

    @cached_property
    def updated(self) -> BitMap64:
        return self.changes.updated & self.before & self.live

    @cached_property
    def kept(self) -> BitMap64:
        """Rows whose results are still right."""
        return BitMap64() if self.changes.is_total else (self.before & self.live) - self.changes.updated

    @property
    def changed_rows(self) -> int:
        return len(self.inserted) + len(self.deleted) + len(self.updated)

    def as_change(self) -> SourceChange:
        is_known = not self.is_new and not self.changes.is_total
        return SourceChange(
            source=self.levels,
            from_version=None if self.is_new else self.coverage.watermark,
            version=self.snapshot.version,
            inserted=len(self.inserted) if is_known else None,
            updated=len(self.updated) if is_known else None,
            deleted=len(self.deleted) if is_known else None,
        )


@dataclass(frozen=True)
class ViewProgress:
    """What is known about a view when a refresh begins.

    `whole_reason` says why its rows can only be made all together; `lost_reason` why nothing of what it has
    can be relied upon. `keys` are those that the changes have to do with, None for a view without keys.
    Without functions a row costs so little that looking for the changed ones has to be worth it.
    """

    sources: tuple[SourceProgress, ...]
    keys: BitMap64 | None = None
    whole_reason: str | None = None
    lost_reason: str | None = None
    sql: SqlPlan | None = None
    has_functions: bool = True

    @property
    def first(self) -> SourceProgress:
        return self.sources[0]

    @property
    def has_changed(self) -> bool:
        return any(source.changed_rows for source in self.sources) or bool(self.keys)


def plan_refresh(progress: ViewProgress, policy: RefreshPolicy) -> RefreshPlan:
    """Incremental whenever the changes are known, else everything anew; `policy` may ask for the latter."""
    reason = _full_reason(progress, policy)
    changes = tuple(source.as_change() for source in progress.sources)
    if reason is not None:
        return _full(progress, changes, reason)
    if not progress.has_changed and not progress.first.coverage.outdated:
        return RefreshPlan(
            RefreshMode.NO_OP, _idle_reason(progress), changes, 0, rows_reused=_rows(progress.sources)
        )
    versions = ", ".join(str(source.coverage.watermark) for source in progress.sources)
    why = f"the rows changed since source version {versions} are known"
    if progress.keys is not None:
        return _by_keys(progress, changes, why, progress.keys)
    return _by_rows(progress.first, changes, why)


def covered_after(progress: ViewProgress, covered: BitMap64 | None, cut: int | None) -> tuple[Coverage, ...]:
    """The view's coverage once a plan has been carried out: every live row, results or not.

    `covered` are those of the first source that are represented if not all are; `cut` is so only in part.
    """
    return tuple(
        Coverage(
            digest=source.coverage.digest,
            watermark=source.snapshot.version,
            rows=source.live if covered is None or number else covered,
            revision=source.coverage.revision,
            outdated=BitMap64([cut]) if cut is not None and not number else BitMap64(),
        )
        for number, source in enumerate(progress.sources)
    )


def _full_reason(progress: ViewProgress, policy: RefreshPolicy) -> str | None:
    if policy is RefreshPolicy.FULL:
        return "a full refresh was asked for"
    if any(source.is_new for source in progress.sources):
        return "the view has never been refreshed"
    if progress.lost_reason is not None:
        return progress.lost_reason
    for source in progress.sources:
        if source.changes.is_total:
            return f"the changes since the last refresh cannot be told: {source.changes.reason}"
    if progress.whole_reason is not None and progress.has_changed:
        return progress.whole_reason
    if policy is RefreshPolicy.AUTO and (progress.keys is not None or not progress.has_functions):
        changed = sum(source.changed_rows for source in progress.sources)
        rows = sum(len(source.live) for source in progress.sources)
        if rows >= FEWEST_ROWS and changed > MOST_CHANGED * rows:
            return f"{changed:,} of {rows:,} rows changed, so that making everything anew is no slower"
    return None


def _idle_reason(progress: ViewProgress) -> str:
    if all(source.coverage.watermark == source.snapshot.version for source in progress.sources):
        return "the source has not changed since the last refresh"
    return "nothing that the view is made from has changed since the last refresh"


def _full(progress: ViewProgress, changes: tuple[SourceChange, ...], reason: str) -> RefreshPlan:
    source = progress.first
    return RefreshPlan(
        mode=RefreshMode.FULL,
        reason=reason,
        changes=changes,
        rows=_rows(progress.sources),
        rows_replaced=len(source.before & source.live),
        rows_removed=len(source.deleted),
        work=() if source.located is None else work_of(source.snapshot, source.located.by_fragment()),
        stale=source.coverage.held,
    )


def _by_keys(
    progress: ViewProgress, changes: tuple[SourceChange, ...], reason: str, keys: BitMap64
) -> RefreshPlan:
    return RefreshPlan(
        mode=RefreshMode.INCREMENTAL,
        reason=reason,
        changes=changes,
        rows=sum(source.changed_rows for source in progress.sources),
        rows_reused=sum(len(source.kept) for source in progress.sources),
        rows_replaced=sum(len(source.updated) for source in progress.sources),
        rows_removed=sum(len(source.deleted) for source in progress.sources),
        keys=keys,
    )


def _by_rows(source: SourceProgress, changes: tuple[SourceChange, ...], reason: str) -> RefreshPlan:
    todo = {} if source.located is None else source.located.by_fragment(source.live - source.kept)
    work = work_of(source.snapshot, todo)
    return RefreshPlan(
        mode=RefreshMode.INCREMENTAL,
        reason=reason,
        changes=changes,
        rows=sum(item.row_count for item in work),
        rows_reused=len(source.kept),
        rows_replaced=len(source.updated),
        rows_removed=len(source.deleted),
        work=work,
        stale=source.coverage.held - source.kept,
    )


def _rows(sources: Sequence[SourceProgress]) -> int:
    return sum(len(source.live) for source in sources)


def work_of(snapshot: TableSnapshot, todo: Mapping[int, BitMap64]) -> tuple[FragmentWork, ...]:
    """Whole fragments are said to be so: then nobody has to look for their rows one by one."""
    live = {fragment.fragment_id: fragment.live_rows for fragment in snapshot.fragments}
    return tuple(
        FragmentWork(fragment, None if len(rows) == live.get(fragment) else rows, len(rows))
        for fragment, rows in sorted(todo.items())
    )
