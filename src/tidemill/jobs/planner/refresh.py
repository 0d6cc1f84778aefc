"""Decides which rows of a view's source have to be evaluated, and whose old results have to go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyroaring import BitMap64

from tidemill.jobs.model.coverage import Changes, Coverage, advance
from tidemill.jobs.model.plans import FragmentWork, RefreshPlan, RowLocations, TableSnapshot


@dataclass(frozen=True)
class ViewProgress:
    """What is known about a view when a refresh begins.

    `is_whole` says that its rows come from the source as a whole: any change of that means all of it anew.
    """

    snapshot: TableSnapshot
    coverage: Coverage
    changes: Changes
    located: RowLocations
    is_whole: bool = False


def plan_refresh(progress: ViewProgress, *, is_full: bool) -> RefreshPlan:
    """Incremental whenever the changes are known; else, or if asked, everything anew."""
    before = progress.coverage.rows
    live = progress.located.all_rows()
    kept = advance(progress.coverage, progress.changes, 0).rows
    is_stale = before != live or kept != live or not progress.coverage.revision
    total = is_full or progress.changes.is_total or (progress.is_whole and is_stale)
    if total:
        kept = BitMap64()
    todo = progress.located.by_fragment(live - kept)
    gone = before - live
    return RefreshPlan(
        source_version=progress.snapshot.version,
        work=_work(progress.snapshot, todo),
        stale=before - (kept & live),
        is_full=total,
        reason=_reason(progress, is_full=is_full),
        rows_reused=len(kept & live),
        rows_replaced=len((before & live) - kept),
        rows_removed=len(gone),
    )


def _work(snapshot: TableSnapshot, todo: Mapping[int, BitMap64]) -> tuple[FragmentWork, ...]:
    """Whole fragments are said to be so: then nobody has to look for their rows one by one."""
    live = {fragment.fragment_id: fragment.live_rows for fragment in snapshot.fragments}
    return tuple(
        FragmentWork(fragment, None if len(rows) == live.get(fragment) else rows, len(rows))
        for fragment, rows in sorted(todo.items())
    )


def covered_after(plan: RefreshPlan, progress: ViewProgress) -> Coverage:
    """The view's coverage once the plan has been carried out: every live row, results or not."""
    coverage = progress.coverage
    return Coverage(coverage.digest, plan.source_version, progress.located.all_rows(), coverage.revision)


def _reason(progress: ViewProgress, *, is_full: bool) -> str:
    if is_full:
        return "a full refresh was asked for"
    if progress.changes.is_total:
        return f"the changes since the last refresh cannot be told: {progress.changes.reason}"
    if not progress.coverage.revision:
        return "the view has never been refreshed"
    if progress.is_whole and progress.coverage.watermark != progress.snapshot.version:
        return "its function takes the source as a whole"
    if progress.coverage.watermark == progress.snapshot.version:
        return "the source has not changed since the last refresh"
    return f"the rows changed since source version {progress.coverage.watermark} are known"
