"""Decides how a view is refreshed: which rows or keys are made anew, or everything, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from tidemill.jobs.model.coverage import Changes, Coverage, row_set
from tidemill.jobs.model.plans import (
    FragmentWork,
    KeyedRows,
    RefreshMode,
    RefreshPlan,
    RowLocations,
    SourceChange,
    SqlPlan,
    TableSnapshot,
    ViewEdits,
)
from tidemill.jobs.model.views import OutputCap, RefreshPolicy

# With more of the rows changed, making everything anew is no slower than looking for those that did.
MOST_CHANGED: Final = 0.3
# With fewer rows than that it makes no difference.
FEWEST_ROWS: Final = 10_000
NO_EDITS: Final = ViewEdits(0)


@dataclass(frozen=True)
class SourceProgress:
    """What is known about one source of a view when a refresh begins.

    `located` are its rows, as far as the view has to do with them; None when nothing has happened to it.
    `edited` are rows whose results others have changed in the view itself.
    """

    levels: tuple[str, ...]
    snapshot: TableSnapshot
    coverage: Coverage
    changes: Changes
    located: RowLocations | None
    edited: BitMap64 = field(default_factory=BitMap64)

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
        if self.changes.is_total:
            return BitMap64()
        return (self.before & self.live) - self.changes.updated - self.edited

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
    Without functions a row costs so little that looking for the changed ones has to be worth it. `edits` are
    what others did to the view's own rows.
    """

    sources: tuple[SourceProgress, ...]
    keys: BitMap64 | None = None
    whole_reason: str | None = None
    lost_reason: str | None = None
    sql: SqlPlan | None = None
    has_functions: bool = True
    edits: ViewEdits = NO_EDITS

    @property
    def first(self) -> SourceProgress:
        return self.sources[0]

    @property
    def has_changed(self) -> bool:
        return any(source.changed_rows for source in self.sources) or bool(self.keys or self.edits.keys)


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
    why = _incremental_reason(progress)
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
            files=source.coverage.files if source.changes.files is None else source.changes.files,
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


def _incremental_reason(progress: ViewProgress) -> str:
    versions = ", ".join(str(source.coverage.watermark) for source in progress.sources)
    reason = f"the rows changed since source version {versions} are known"
    if not progress.edits.keys:
        return reason
    return f"{reason}; others changed the view itself, in rows with {len(progress.edits.keys):,} keys"


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
        stale=(source.coverage.held | source.edited) - source.kept,
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


@dataclass(frozen=True)
class Trimmed:
    """Rows of a view that are too many, and the source rows still represented, `cut` only in part."""

    removed: BitMap64
    covered: BitMap64
    cut: int | None


def output_cap(limit: int, kept: BitMap64, rows: KeyedRows) -> OutputCap:
    """What is shown already, for the source rows whose results stay."""
    ids = np.array(kept.to_array(), dtype=np.uint64)
    first = np.searchsorted(rows.keys, ids, side="left")
    return OutputCap(limit, ids, np.searchsorted(rows.keys, ids, side="right") - first)


def capped_plan(plan: RefreshPlan, source: SourceProgress, limit: int, rows: KeyedRows) -> RefreshPlan:
    """As much of the plan as is shown, and what of the view's `rows` has to go for that."""
    kept = BitMap64() if plan.is_full else source.kept
    cap = output_cap(limit, kept, rows)
    todo = rows_in_reach(cap, source.live - kept)
    work = () if source.located is None else _listed(source.located.by_fragment(todo))
    capped = replace(plan, rows=len(todo), work=work)
    if plan.is_full:
        return capped
    too_many = trimmed(cap, (cap.kept[:0], cap.counts[:0]), rows).removed
    if todo or too_many or rows.rows_of(source.coverage.held - kept):
        reason = "another number of rows is to be shown" if plan.is_empty else plan.reason
        return replace(capped, mode=RefreshMode.INCREMENTAL, reason=reason)
    return replace(capped, mode=RefreshMode.NO_OP, reason="as many rows as asked for are shown already")


def _listed(rows: Mapping[int, BitMap64]) -> tuple[FragmentWork, ...]:
    return tuple(FragmentWork(fragment, ids, len(ids)) for fragment, ids in sorted(rows.items()))


def rows_in_reach(cap: OutputCap, todo: BitMap64) -> BitMap64:
    """Those of the source rows that may be shown: fewer rows than the limit come before them for certain."""
    ids = np.array(todo.to_array(), dtype=np.uint64)
    return row_set(ids[_before(cap.kept, cap.counts, ids) < cap.limit])


def rows_fitting(
    cap: OutputCap, ids: npt.NDArray[np.uint64], counts: npt.NDArray[np.int64], made: int
) -> npt.NDArray[np.int64]:
    """How many of each of these source rows' results are shown, if `made` of earlier ones are."""
    before = _before(cap.kept, cap.counts, ids) + made + np.cumsum(counts) - counts
    fitting: npt.NDArray[np.int64] = np.clip(cap.limit - before, 0, counts)
    return fitting


def trimmed(
    cap: OutputCap, made: tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]], rows: KeyedRows
) -> Trimmed:
    """What has to go of the results that were there, given how many rows others have been made into."""
    before = np.cumsum(cap.counts) - cap.counts + _before(*made, cap.kept)
    shown = np.clip(cap.limit - before, 0, cap.counts)
    is_whole = (shown == cap.counts) & ((cap.counts > 0) | (before < cap.limit))
    partly = cap.kept[(shown < cap.counts) & (shown > 0)]
    first = np.searchsorted(rows.keys, cap.kept, side="left")
    too_many = [
        rows.row_ids[start + keep : start + count]
        for start, keep, count in zip(first, shown, cap.counts, strict=True)
        if keep < count
    ]
    removed = np.sort(np.concatenate([np.empty(0, np.uint64), *too_many]))
    return Trimmed(row_set(removed), row_set(cap.kept[is_whole]), int(partly[0]) if len(partly) else None)


def _before(
    ids: npt.NDArray[np.uint64], counts: npt.NDArray[np.int64], wanted: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """How many rows come from source rows with smaller ids."""
    sums = np.concatenate([[0], np.cumsum(counts)])
    found: npt.NDArray[np.int64] = sums[np.searchsorted(ids, wanted, side="left")]
    return found
