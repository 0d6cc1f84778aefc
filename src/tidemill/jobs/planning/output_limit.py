"""Which rows a chunker's view shows when it may show only so many: the first ones, by source row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from tidemill.jobs.model.coverage import row_set
from tidemill.jobs.model.plans import FragmentWork, KeyedRows, RefreshMode, RefreshPlan
from tidemill.jobs.model.stages import OutputCap
from tidemill.jobs.planning.refresh import SourceProgress


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
