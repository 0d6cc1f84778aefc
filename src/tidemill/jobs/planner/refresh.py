"""Decides which rows of a view's source have to be evaluated, and whose old results have to go."""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap64

from tidemill.jobs.model.coverage import Changes, Coverage, advance
from tidemill.jobs.model.plans import FragmentWork, RefreshPlan, RowLocations, TableSnapshot


@dataclass(frozen=True)
class ViewProgress:
    """What is known about a view when a refresh begins."""

    snapshot: TableSnapshot
    coverage: Coverage
    changes: Changes
    located: RowLocations


def plan_refresh(progress: ViewProgress, *, is_full: bool) -> RefreshPlan:
    """Incremental whenever the changes are known; else, or if asked, everything anew."""
    total = is_full or progress.changes.is_total
    before = progress.coverage.rows
    kept = BitMap64() if total else advance(progress.coverage, progress.changes, 0).rows
    live = progress.located.all_rows()
    todo = progress.located.by_fragment(live - kept)
    gone = before - live
    return RefreshPlan(
        source_version=progress.snapshot.version,
        work=tuple(FragmentWork(fragment, rows, len(rows)) for fragment, rows in sorted(todo.items())),
        stale=before - (kept & live),
        is_full=total,
        reason=_reason(progress, is_full=is_full),
        rows_reused=len(kept & live),
        rows_replaced=len((before & live) - kept),
        rows_removed=len(gone),
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
    if progress.coverage.watermark == progress.snapshot.version:
        return "the source has not changed since the last refresh"
    return f"the rows changed since source version {progress.coverage.watermark} are known"
