"""Decides which rows of a column have to be computed, by which tasks, and in which commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyroaring import BitMap64

from tidemill.jobs.model.coverage import Changes, Coverage, advance
from tidemill.jobs.model.options import BackfillRequest, RowSelection
from tidemill.jobs.model.plans import BackfillPlan, FragmentWork, RowLocations, TableSnapshot
from tidemill.jobs.planning.tasks import commit_group

DEFAULT_COMMIT_GRANULARITY: Final = 64


@dataclass(frozen=True)
class ColumnProgress:
    """What is known about a column when a pass begins.

    `located` is None when nothing is covered and there is no filter: then every live row is wanted,
    and there is no need to look at their ids. `others` hold values of other versions of the function,
    of which the `kept` ones count as fresh, and on `failed` ones the function failed.
    """

    snapshot: TableSnapshot
    coverage: Coverage
    changes: Changes
    located: RowLocations | None
    others: BitMap64 = field(default_factory=BitMap64)
    failed: BitMap64 = field(default_factory=BitMap64)
    kept: BitMap64 = field(default_factory=BitMap64)

    @property
    def is_past(self) -> bool:
        """Whether the snapshot is older than what is known: then covered rows hold something newer."""
        return self.snapshot.version < self.coverage.watermark

    @property
    def current(self) -> Coverage:
        """The coverage as of the snapshot; what is newer stays as it is."""
        if self.is_past:
            return self.coverage
        return advance(self.coverage, self.changes, self.snapshot.version)

    @property
    def covered(self) -> BitMap64:
        """Rows that a backfill leaves as they are; some of them may have failed."""
        return self.current.rows | self.kept

    @property
    def stale(self) -> BitMap64:
        """Rows that hold a value, but not the one they should."""
        return (self.coverage.held | self.others) - self.covered - self.failed

    def after(self, coverage: Coverage, written: BitMap64) -> Coverage:
        """The coverage once these rows were written with values of the snapshot."""
        fresh = written
        if self.is_past:
            fresh = BitMap64() if self.changes.is_total else written - self.changes.updated
        rows = (coverage.rows - written) | fresh
        return replace(coverage, rows=rows, outdated=(coverage.held | written) - rows)


def plan_backfill(
    progress: ColumnProgress, request: BackfillRequest, slots: int, done: BitMap64 | None = None
) -> BackfillPlan:
    """`slots` is how many tasks run at a time; rows that are `done` are not planned again.

    Rows are done of a selection only, and then they have been located.
    """
    work = (
        _whole_fragments(progress.snapshot)
        if progress.located is None
        else _rows(progress.located, _wanted(progress, request), done)
    )
    if request.num_frags is not None:
        work = work[: request.num_frags]
    size = request.commit_granularity or DEFAULT_COMMIT_GRANULARITY
    groups = [work[start : start + size] for start in range(0, len(work), size)]
    planned = sum(item.row_count for item in work)
    return BackfillPlan(
        read_version=progress.snapshot.version,
        groups=tuple(commit_group(group, request, slots) for group in groups),
        reason=_reason(progress, request, planned),
        rows_reused=_rows_reused(progress, request, work),
    )


def _rows_reused(progress: ColumnProgress, request: BackfillRequest, work: Sequence[FragmentWork]) -> int:
    """Rows that are up to date and stay as they are; with a filter it is not known which of them live."""
    if progress.located is None:
        return 0
    left = progress.snapshot.live_rows - sum(item.row_count for item in work)
    if request.where is None and request.only is None and request.num_frags is None:
        return left
    rows = BitMap64(progress.covered)
    for item in work:
        rows -= item.rows or BitMap64()
    if request.where is None:
        rows &= progress.located.all_rows()
    return min(len(rows), left)


def _whole_fragments(snapshot: TableSnapshot) -> tuple[FragmentWork, ...]:
    return tuple(
        FragmentWork(fragment.fragment_id, None, fragment.live_rows)
        for fragment in snapshot.fragments
        if fragment.live_rows
    )


@dataclass(frozen=True)
class _Wanted:
    """Rows to take (None: all), and of these, rows to leave out."""

    rows: BitMap64 | None
    but: BitMap64


def _wanted(progress: ColumnProgress, request: BackfillRequest) -> _Wanted:
    nothing, covered = BitMap64(), progress.covered
    if request.where is not None:
        return _Wanted(None, nothing)
    match request.only:
        case None:
            return _Wanted(None, covered)
        case RowSelection.STALE:
            return _Wanted(progress.stale, nothing)
        case RowSelection.MISSING:
            return _Wanted(None, covered | progress.stale | progress.failed)
        case RowSelection.FAILED:
            return _Wanted(progress.failed, nothing)


def _rows(located: RowLocations, wanted: _Wanted, done: BitMap64 | None) -> tuple[FragmentWork, ...]:
    but = wanted.but if done is None else wanted.but | done
    found = {fragment: rows - but for fragment, rows in located.by_fragment(wanted.rows).items()}
    return tuple(FragmentWork(fragment, rows, len(rows)) for fragment, rows in sorted(found.items()) if rows)


def find_outlived_failures(progress: ColumnProgress) -> str | None:
    """Why no row is failed and what to run instead, if the function is another one than values are of.

    The errors of rows are those of one version of the function: with another one, such rows are stale.
    """
    live = BitMap64() if progress.located is None else progress.located.all_rows()
    if progress.failed & live or not progress.others & progress.stale & live:
        return None
    return (
        f"the function has changed, so {len(progress.stale & live):,} rows are stale; "
        "leave out only=failed (retry_failed) to compute every row that is stale or missing"
    )


def _selection_reason(progress: ColumnProgress, selection: RowSelection, planned: int) -> str:
    advice = find_outlived_failures(progress) if selection is RowSelection.FAILED else None
    return f"{planned:,} rows are {selection}" + (f": {advice}" if advice else "")


def _idle_reason(progress: ColumnProgress) -> str:
    located, failed = progress.located, progress.failed
    if located is None or not failed or not (failed := failed & located.all_rows()):
        return "every row is up to date"
    return f"every other row is up to date; {len(failed):,} failed, and only=failed computes them again"


def _reason(progress: ColumnProgress, request: BackfillRequest, planned: int) -> str:
    if request.where is not None:
        return f"{planned:,} rows match the filter"
    if request.only is not None:
        return _selection_reason(progress, request.only, planned)
    if not planned:
        return _idle_reason(progress)
    if progress.changes.is_total:
        return f"nothing can be reused: {progress.changes.reason}"
    if progress.kept:
        kept = f"{len(progress.kept):,} rows keep values of an earlier version of the function"
        return f"{kept}, {planned:,} failed, are new, were never computed or had an input updated"
    if not progress.coverage.rows and progress.others:
        return f"{len(progress.others):,} rows hold values of another version of the function"
    if not progress.coverage.rows:
        return "nothing has been computed with this function yet"
    updated = len(progress.coverage.rows & progress.changes.updated)
    return (
        f"{updated:,} rows had an input updated, {max(planned - updated, 0):,} are new or were never computed"
    )
