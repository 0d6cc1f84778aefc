"""Plans are pure: decided from values, touching nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from tidemill.jobs.model.coverage import Changes, Coverage, member_mask, row_set
from tidemill.jobs.model.options import BackfillRequest, RowSelection
from tidemill.jobs.model.plans import FragmentInfo, RowLocations, TableSnapshot
from tidemill.jobs.model.views import RefreshPolicy
from tidemill.jobs.planning.backfill import ColumnProgress, plan_backfill
from tidemill.jobs.planning.refresh import SourceProgress, ViewProgress, covered_after, plan_refresh

SETS = st.sets(st.integers(0, 40))


def located(live: set[int]) -> RowLocations:
    ids = np.array(sorted(live), dtype=np.uint64)
    return RowLocations(ids, ids // np.uint64(10))


def snapshot(live: set[int]) -> TableSnapshot:
    fragments = tuple(FragmentInfo(n, 10, len([i for i in live if i // 10 == n])) for n in range(5))
    return TableSnapshot(9, pa.schema([]), fragments, has_stable_row_ids=True)


@given(live=SETS, covered=SETS, updated=SETS)
def test_a_backfill_computes_what_is_live_and_not_up_to_date(
    live: set[int], covered: set[int], updated: set[int]
) -> None:
    coverage = Coverage("d", 5, BitMap64(covered), 1)
    progress = ColumnProgress(snapshot(live), coverage, Changes(BitMap64(updated)), located(live))
    plan = plan_backfill(progress, BackfillRequest("c", commit_granularity=2), slots=2)
    work = [item for group in plan.groups for item in group.work]
    planned = BitMap64()
    for item in work:
        assert item.rows is not None
        assert {row // 10 for row in item.rows} == {item.fragment_id}
        planned |= item.rows
    assert set(planned) == live - (covered - updated)
    assert all(len(group.work) <= 2 for group in plan.groups)
    assert plan.is_empty == (not planned)
    assert plan.rows + plan.rows_reused == len(live)


@given(live=SETS, covered=SETS)
def test_a_filter_is_taken_at_its_word(live: set[int], covered: set[int]) -> None:
    coverage = Coverage("d", 5, BitMap64(covered), 1)
    progress = ColumnProgress(snapshot(live), coverage, Changes(), located(live))
    assert plan_backfill(progress, BackfillRequest("c", where="x > 1"), slots=2).rows == len(live)


def test_whole_fragments_are_planned_without_looking_at_rows() -> None:
    progress = ColumnProgress(snapshot({1, 2, 11}), Coverage("d"), Changes(), None)
    (group,) = plan_backfill(progress, BackfillRequest("c"), slots=2).groups
    assert [(item.fragment_id, item.rows, item.row_count) for item in group.work] == [
        (0, None, 2),
        (1, None, 1),
    ]


@given(live=SETS, covered=SETS, updated=SETS, others=SETS, failed=SETS, kept=SETS)
def test_the_selections_part_what_is_live(
    live: set[int], covered: set[int], updated: set[int], others: set[int], failed: set[int], kept: set[int]
) -> None:
    others -= covered
    coverage, changes = Coverage("d", 5, BitMap64(covered), 1), Changes(BitMap64(updated))
    progress = ColumnProgress(
        snapshot(live),
        coverage,
        changes,
        located(live),
        BitMap64(others),
        BitMap64(failed),
        BitMap64((kept & others) - failed),
    )

    def planned(only: RowSelection | None) -> set[int]:
        plan = plan_backfill(progress, BackfillRequest("c", only=only), slots=2)
        return {row for group in plan.groups for item in group.work for row in item.rows or ()}

    fresh = (covered - updated) | (kept & others) - failed
    stale = live & (others | covered) - fresh - failed
    assert planned(RowSelection.STALE) == stale
    assert planned(RowSelection.MISSING) == live - covered - others - failed
    assert planned(RowSelection.FAILED) == live & failed
    assert planned(None) == live - fresh


@given(live=SETS, covered=SETS, updated=SETS)
def test_values_newer_than_a_pinned_version_stay(
    live: set[int], covered: set[int], updated: set[int]
) -> None:
    coverage = Coverage("d", 12, BitMap64(covered), 1)
    progress = ColumnProgress(snapshot(live), coverage, Changes(BitMap64(updated)), located(live))
    plan = plan_backfill(progress, BackfillRequest("c", read_version=9), slots=2)
    planned = BitMap64()
    for group in plan.groups:
        for item in group.work:
            planned |= item.rows or BitMap64()
    assert set(planned) == live - covered
    after = progress.after(progress.current, planned)
    assert after.watermark == 12
    assert set(after.rows) == covered | (live - updated)


def view_progress(live: set[int], coverage: Coverage, updated: set[int], **more: Any) -> ViewProgress:
    changes = Changes(BitMap64(updated))
    source = SourceProgress(("t",), snapshot(live), coverage, changes, located(live))
    return ViewProgress((source,), **more)


@given(live=SETS, covered=SETS, updated=SETS, is_full=st.booleans())
def test_a_refresh_leaves_exactly_the_results_of_live_rows(
    live: set[int], covered: set[int], updated: set[int], is_full: bool
) -> None:
    progress = view_progress(live, Coverage("d", 5, BitMap64(covered), 1), updated)
    plan = plan_refresh(progress, RefreshPolicy.FULL if is_full else RefreshPolicy.AUTO)
    computed = {
        row
        for item in plan.work
        for row in (item.rows or [row for row in live if row // 10 == item.fragment_id])
    }
    kept = set() if is_full else covered - set(plan.stale)
    assert kept | computed == live
    assert not kept & computed
    assert not kept & updated
    [after] = covered_after(progress, None, None)
    assert set(after.rows) == live
    assert plan.rows_removed == (0 if plan.is_empty else len(covered - live))
    assert plan.rows_reused + plan.rows == len(live)


@given(live=SETS, covered=SETS, updated=SETS)
def test_a_view_of_the_source_as_a_whole_is_made_anew_or_left_alone(
    live: set[int], covered: set[int], updated: set[int]
) -> None:
    coverage = Coverage("d", 5, BitMap64(covered), 1)
    plan = plan_refresh(view_progress(live, coverage, updated, whole_reason="as one"), RefreshPolicy.AUTO)
    assert plan.is_full == (covered != live or bool(covered & updated))
    assert plan.is_empty != plan.is_full
    assert plan.rows == (len(live) if plan.is_full else 0)


def test_a_view_of_a_whole_but_empty_source_is_made_once() -> None:
    progress = view_progress(set(), Coverage("d"), set(), whole_reason="as one")
    assert plan_refresh(progress, RefreshPolicy.AUTO).is_full


def test_keys_of_few_changes_are_made_anew_and_of_many_everything() -> None:
    live = set(range(10_000))
    coverage = Coverage("d", 5, BitMap64(live), 1)
    few = view_progress(live, coverage, {1}, keys=BitMap64([7]))
    assert plan_refresh(few, RefreshPolicy.AUTO).keys == BitMap64([7])
    many = view_progress(live, coverage, set(range(3001)), keys=BitMap64([7]))
    plan = plan_refresh(many, RefreshPolicy.AUTO)
    assert plan.is_full
    assert plan.reason.startswith("3,001 of 10,000 rows changed")
    assert plan_refresh(many, RefreshPolicy.INCREMENTAL).keys == BitMap64([7])


def test_rows_without_functions_are_made_anew_when_many_changed() -> None:
    live = set(range(10_000))
    coverage, updated = Coverage("d", 5, BitMap64(live), 1), set(range(3001))
    cheap = view_progress(live, coverage, updated, has_functions=False)
    assert plan_refresh(cheap, RefreshPolicy.AUTO).is_full
    assert plan_refresh(view_progress(live, coverage, updated), RefreshPolicy.AUTO).rows == 3001


def test_a_state_that_others_put_there_is_not_built_upon() -> None:
    progress = view_progress({1}, Coverage("d", 5, BitMap64([1]), 1), set(), lost_reason="restored")
    plan = plan_refresh(progress, RefreshPolicy.AUTO)
    assert (plan.is_full, plan.reason) == (True, "restored")


@given(live=SETS, offset=st.none() | st.integers(0, 9), limit=st.none() | st.integers(0, 9))
def test_a_window_counts_rows_in_the_order_they_are_stored(
    live: set[int], offset: int | None, limit: int | None
) -> None:
    rest = sorted(live)[offset or 0 :]
    window = located(live).window(offset, limit)
    assert list(window.row_ids) == (rest if limit is None else rest[:limit])


@given(SETS, SETS)
def test_row_sets_hold_what_was_put_in(first: set[int], second: set[int]) -> None:
    ids = np.array(sorted(first), dtype=np.uint64)
    assert set(row_set(ids)) == first
    assert [int(i) for i in ids[member_mask(ids, BitMap64(second))]] == sorted(first & second)


@given(SETS.flatmap(lambda ids: st.permutations(sorted(ids))))
def test_rows_are_found_in_their_fragment_whatever_their_order(live: list[int]) -> None:
    ids = np.array(live, dtype=np.uint64)
    found = RowLocations(ids, ids // np.uint64(10)).by_fragment()
    assert {fragment: set(rows) for fragment, rows in found.items()} == {
        n: {i for i in live if i // 10 == n} for n in {i // 10 for i in live}
    }
