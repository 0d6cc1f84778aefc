"""Decides which rows of a column have to be computed, and in which commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap64

from tidemill.jobs.model.coverage import Changes, Coverage, advance
from tidemill.jobs.model.jobs import BackfillRequest
from tidemill.jobs.model.plans import BackfillPlan, FragmentWork, RowLocations, TableSnapshot

DEFAULT_COMMIT_GRANULARITY: Final = 64


@dataclass(frozen=True)
class ColumnProgress:
    """What is known about a column when a pass begins.

    `located` is None when nothing is covered and there is no filter: then every live row is wanted,
    and there is no need to look at their ids.
    """

    snapshot: TableSnapshot
    coverage: Coverage
    changes: Changes
    located: RowLocations | None

    @property
    def current(self) -> Coverage:
        """The coverage as of the snapshot."""
        return advance(self.coverage, self.changes, self.snapshot.version)


def plan_backfill(progress: ColumnProgress, request: BackfillRequest) -> BackfillPlan:
    covered = progress.current.rows
    work = (
        _whole_fragments(progress.snapshot)
        if progress.located is None
        else _rows(progress.located, request, covered)
    )
    if request.num_frags is not None:
        work = work[: request.num_frags]
    size = request.commit_granularity or DEFAULT_COMMIT_GRANULARITY
    groups = tuple(work[start : start + size] for start in range(0, len(work), size))
    planned = sum(item.row_count for item in work)
    return BackfillPlan(
        read_version=progress.snapshot.version,
        groups=groups,
        reason=_reason(progress, request, planned),
        rows_reused=progress.snapshot.live_rows - planned,
    )


def _whole_fragments(snapshot: TableSnapshot) -> tuple[FragmentWork, ...]:
    return tuple(
        FragmentWork(fragment.fragment_id, None, fragment.live_rows)
        for fragment in snapshot.fragments
        if fragment.live_rows
    )


def _rows(located: RowLocations, request: BackfillRequest, covered: BitMap64) -> tuple[FragmentWork, ...]:
    found = located.by_fragment()
    if request.where is None:
        found = {fragment: rows - covered for fragment, rows in found.items()}
    return tuple(FragmentWork(fragment, rows, len(rows)) for fragment, rows in sorted(found.items()) if rows)


def _reason(progress: ColumnProgress, request: BackfillRequest, planned: int) -> str:
    if request.where is not None:
        return f"{planned:,} rows match the filter"
    if not planned:
        return "every row is up to date"
    if progress.changes.is_total:
        return f"nothing can be reused: {progress.changes.reason}"
    if not progress.coverage.rows:
        return "nothing has been computed with this function yet"
    updated = len(progress.coverage.rows & progress.changes.updated)
    return (
        f"{updated:,} rows had an input updated, {max(planned - updated, 0):,} are new or were never computed"
    )
