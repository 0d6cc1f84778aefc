"""Plans are right for whatever a planner is given, and no part of that is left undrawn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from tests.unit.jobs.planner_inputs import ROWS, BackfillCase, backfill_cases, view_progresses
from tidemill.jobs.model.coverage import Changes, Coverage
from tidemill.jobs.model.options import BackfillRequest, RowSelection
from tidemill.jobs.model.plans import (
    BackfillPlan,
    FragmentInfo,
    FragmentWork,
    RefreshMode,
    RowLocations,
    TableSnapshot,
)
from tidemill.jobs.model.views import RefreshPolicy
from tidemill.jobs.planning import refresh
from tidemill.jobs.planning.backfill import ColumnProgress, plan_backfill
from tidemill.jobs.planning.refresh import SourceProgress, ViewProgress, covered_after, plan_refresh

POLICIES = st.sampled_from([RefreshPolicy.AUTO, RefreshPolicy.AUTO, *RefreshPolicy])
# So few rows are drawn that a view would never be made anew because many changed.
FEW_ROWS = 4
EXAMPLES = 500
OFTEN = 3
SITUATIONS = (
    "rows are done",
    "a limit of fragments",
    "outdated rows",
    "others rows",
    "failed rows",
    "kept rows",
    "a pinned version",
    "a version that is new",
    "whole fragments",
    "located rows",
    "no_op",
    "full",
    "incremental by rows",
    "incremental by keys",
    "outdated results",
    "nothing but outdated results",
)
INPUTS = (
    BackfillCase,
    ColumnProgress,
    BackfillRequest,
    Coverage,
    Changes,
    TableSnapshot,
    FragmentInfo,
    RowLocations,
    SourceProgress,
    ViewProgress,
)


def parts_of(value: Any) -> Iterator[Any]:
    """A dataclass and all those in it."""
    if isinstance(value, tuple):
        for item in value:
            yield from parts_of(item)
    elif is_dataclass(value):
        yield value
        for field in fields(value):
            yield from parts_of(getattr(value, field.name))


def backfill_situations(case: BackfillCase) -> Iterator[str]:
    """What makes a difference to a plan; a field that is drawn but never matters tests nothing."""
    progress, request = case.progress, case.request
    wanted, unlimited = wanted_rows(case), replace(request, num_frags=None)
    if wanted != wanted_rows(replace(case, done=None)):
        yield "rows are done"
    work = planned_work(plan_backfill(progress, unlimited, case.slots, case.done))
    if request.num_frags is not None and request.num_frags < len(work):
        yield "a limit of fragments"
    for name in ("outdated", "others", "failed", "kept"):
        if wanted != wanted_rows(replace(case, progress=without(progress, name))):
            yield f"{name} rows"
    yield "a pinned version" if progress.is_past else "a version that is new"
    yield "whole fragments" if progress.located is None else "located rows"


def without(progress: ColumnProgress, name: str) -> ColumnProgress:
    if name == "outdated":
        return replace(progress, coverage=replace(progress.coverage, outdated=BitMap64()))
    if name == "others":
        return replace(progress, others=BitMap64())
    if name == "kept":
        return replace(progress, kept=BitMap64())
    return replace(progress, failed=BitMap64())


def view_situations(progress: ViewProgress) -> Iterator[str]:
    plan = plan_refresh(progress, RefreshPolicy.AUTO)
    how = "by rows" if plan.keys is None else "by keys"
    yield f"{plan.mode} {how}" if plan.mode is RefreshMode.INCREMENTAL else plan.mode.value
    first = progress.first
    if plan.mode is RefreshMode.INCREMENTAL and first.coverage.outdated:
        yield "outdated results" if progress.has_changed else "nothing but outdated results"


def test_every_field_that_a_planner_is_given_is_drawn_and_matters() -> None:
    drawn: dict[tuple[str, str], set[str]] = defaultdict(set)
    seen: Counter[str] = Counter()

    def note(value: BackfillCase | ViewProgress, situations: Iterator[str]) -> None:
        for part in parts_of(value):
            for field in fields(part):
                drawn[type(part).__name__, field.name].add(repr(getattr(part, field.name)))
        seen.update(set(situations))

    @settings(max_examples=EXAMPLES, derandomize=True, database=None)
    @given(backfill_cases())
    def draw_backfills(case: BackfillCase) -> None:
        note(case, backfill_situations(case))

    @settings(max_examples=EXAMPLES, derandomize=True, database=None)
    @given(view_progresses())
    def draw_views(progress: ViewProgress) -> None:
        note(progress, view_situations(progress))

    draw_backfills()
    draw_views()
    assert {name: seen[name] for name in SITUATIONS if seen[name] < OFTEN} == {}
    given_to_planners = {(part.__name__, field.name) for part in INPUTS for field in fields(part)}
    assert {name for name in given_to_planners if len(drawn[name]) < 2} == set()


def wanted_rows(case: BackfillCase) -> set[int]:
    """What a backfill has to compute, if there were no limit to it."""
    progress, request = case.progress, case.request
    covered, updated = set(progress.coverage.rows), set(progress.changes.updated)
    if progress.snapshot.version >= progress.coverage.watermark:
        regained = set(progress.changes.regained)
        covered = set() if progress.changes.is_total else (covered - updated) | regained
    located = set(case.live if progress.located is None else progress.located.all_rows())
    with_values = set(progress.coverage.rows) | set(progress.coverage.outdated) | set(progress.others)
    failed = set(progress.failed)
    covered |= set(progress.kept)
    stale = with_values - covered - failed
    if request.where is not None:
        chosen = located
    else:
        chosen = {
            None: located - covered,
            RowSelection.STALE: located & stale,
            RowSelection.MISSING: located - covered - stale - failed,
            RowSelection.FAILED: located & failed,
        }[request.only]
    return chosen - set(case.done or ())


def planned_work(plan: BackfillPlan) -> list[FragmentWork]:
    return [item for group in plan.groups for item in group.work]


def rows_by_fragment(case: BackfillCase, work: list[FragmentWork]) -> dict[int, set[int]]:
    if case.progress.located is None:
        assert all(item.rows is None for item in work)
        live = {info.fragment_id: info.live_rows for info in case.progress.snapshot.fragments}
        assert all(item.row_count == live[item.fragment_id] for item in work)
        return {}
    assert all(item.rows is not None and item.row_count == len(item.rows) for item in work)
    return {item.fragment_id: set(item.rows or ()) for item in work}


@given(backfill_cases())
def test_a_backfill_plans_the_wanted_rows_of_the_first_fragments_that_have_any(case: BackfillCase) -> None:
    plan = plan_backfill(case.progress, case.request, case.slots, case.done)
    work = planned_work(plan)
    assert len({item.fragment_id for item in work}) == len(work) == plan.fragments
    assert plan.read_version == case.progress.snapshot.version
    assert plan.rows == sum(item.row_count for item in work)
    wanted, located = wanted_rows(case), case.progress.located
    if located is not None:
        places = {n: set(rows) & wanted for n, rows in sorted(located.by_fragment().items())}
        expected = [(fragment, rows) for fragment, rows in places.items() if rows]
        assert rows_by_fragment(case, work) == dict(expected[: case.request.num_frags])
    else:
        rows_by_fragment(case, work)
        there = [info.fragment_id for info in case.progress.snapshot.fragments if info.live_rows]
        assert {item.fragment_id for item in work} == set(there[: case.request.num_frags])


@given(backfill_cases())
def test_every_selection_takes_its_own_rows(case: BackfillCase) -> None:
    if case.progress.located is None or case.request.where is not None:
        return
    for only in RowSelection:
        chosen = replace(case, request=replace(case.request, only=only, num_frags=None))
        plan = plan_backfill(chosen.progress, chosen.request, chosen.slots, chosen.done)
        assert {row for item in planned_work(plan) for row in item.rows or ()} == wanted_rows(chosen)


@given(backfill_cases())
def test_a_backfill_reuses_the_rows_that_are_up_to_date_and_no_others(case: BackfillCase) -> None:
    plan = plan_backfill(case.progress, case.request, case.slots, case.done)
    planned = BitMap64(row for item in planned_work(plan) for row in item.rows or ())
    fresh = (case.progress.current.rows | case.progress.kept) & case.live
    if case.progress.located is None:
        assert plan.rows_reused == 0
    elif case.request.where is None:
        assert plan.rows_reused == len(fresh - planned)
    else:
        assert len(fresh - planned) <= plan.rows_reused <= len(case.live - planned)


@given(backfill_cases())
def test_groups_and_tasks_keep_to_their_sizes(case: BackfillCase) -> None:
    plan = plan_backfill(case.progress, case.request, case.slots, case.done)
    size = case.request.commit_granularity
    assert all(0 < len(group.work) <= (size or len(group.work)) for group in plan.groups)
    assert plan.is_empty == (plan.rows == 0)
    for group in plan.groups:
        pieces = [piece for task in group.pieces for piece in task]
        assert not pieces or sum(piece.row_count for piece in pieces) == group.rows
        if case.request.task_size is not None:
            cut = pieces or group.work
            assert all(piece.row_count <= case.request.task_size for piece in cut)


@given(backfill_cases())
def test_once_a_backfill_is_done_there_is_nothing_to_do(case: BackfillCase) -> None:
    """With all the rows that it planned, and up to the version that it read, nothing is wanted again."""
    request = replace(case.request, where=None, only=None, num_frags=None)
    progress = case.progress
    if progress.located is None or case.request.where is not None:
        return
    plan = plan_backfill(progress, request, case.slots)
    written = BitMap64(row for item in planned_work(plan) for row in item.rows or ())
    after = progress.after(progress.current, written)
    assert not after.rows & after.outdated
    assert after.held >= written
    if not progress.is_past:
        then = replace(progress, coverage=after, changes=Changes())
        assert plan_backfill(then, request, case.slots).is_empty


@given(backfill_cases())
def test_how_rows_are_computed_is_no_matter_of_the_plan(case: BackfillCase) -> None:
    plain = replace(
        BackfillRequest("c"),
        **{
            name: getattr(case.request, name)
            for name in (
                "where",
                "only",
                "num_frags",
                "commit_granularity",
                "concurrency",
                "task_size",
            )
        },
    )
    assert plan_backfill(case.progress, plain, case.slots, case.done) == plan_backfill(
        case.progress, case.request, case.slots, case.done
    )


def computed_rows(progress: ViewProgress, work: tuple[FragmentWork, ...]) -> set[int]:
    located = progress.first.located
    assert located is not None or not work
    there = {} if located is None else located.by_fragment()
    found: set[int] = set()
    for item in work:
        rows = set(there[item.fragment_id] if item.rows is None else item.rows)
        assert len(rows) == item.row_count
        assert not rows & found
        found |= rows
    return found


@given(view_progresses(), POLICIES)
def test_a_refresh_leaves_the_results_of_live_rows_and_no_outdated_ones(
    progress: ViewProgress, policy: RefreshPolicy
) -> None:
    with patch.object(refresh, "FEWEST_ROWS", FEW_ROWS):
        plan = plan_refresh(progress, policy)
    source = progress.first
    if plan.keys is not None or len(progress.sources) > 1 or progress.whole_reason is not None:
        return
    if source.located is None and plan.is_full:
        return
    stays = set(source.coverage.held) - set(plan.stale)
    computed = computed_rows(progress, plan.work)
    if plan.is_full:
        assert plan.stale == source.coverage.held
    if not plan.is_empty:
        assert not stays & set(source.coverage.outdated)
    assert not stays & set((source.changes.updated & source.before) | source.edited) or plan.is_empty
    assert stays | computed == set(source.live)
    assert not stays & computed
    assert plan.rows == len(computed)


@given(view_progresses(), POLICIES)
def test_a_refresh_does_nothing_only_when_nothing_is_to_be_done(
    progress: ViewProgress, policy: RefreshPolicy
) -> None:
    with patch.object(refresh, "FEWEST_ROWS", FEW_ROWS):
        plan = plan_refresh(progress, policy)
    has_work = (
        policy is RefreshPolicy.FULL
        or progress.lost_reason is not None
        or bool(progress.keys or progress.edits.keys)
        or bool(progress.first.coverage.outdated)
        or any(source.is_new or source.changes.is_total or source.changed_rows for source in progress.sources)
    )
    assert plan.is_empty != has_work
    assert [change.version for change in plan.changes] == [s.snapshot.version for s in progress.sources]
    if plan.is_empty:
        assert (plan.rows, plan.work, plan.stale, plan.keys) == (0, (), BitMap64(), None)


@given(view_progresses(), POLICIES)
def test_a_view_with_keys_is_made_anew_for_these_or_as_a_whole(
    progress: ViewProgress, policy: RefreshPolicy
) -> None:
    with patch.object(refresh, "FEWEST_ROWS", FEW_ROWS):
        plan = plan_refresh(progress, policy)
    if plan.mode is RefreshMode.INCREMENTAL:
        assert plan.keys == progress.keys
    else:
        assert plan.keys is None
    if plan.keys is not None:
        assert (plan.work, plan.stale) == ((), BitMap64())
        assert plan.rows == sum(source.changed_rows for source in progress.sources)


@given(view_progresses(), st.none() | st.integers(0, ROWS - 1))
def test_after_a_refresh_only_the_row_that_is_cut_is_outdated(
    progress: ViewProgress, cut: int | None
) -> None:
    covered = progress.first.live - BitMap64([] if cut is None else [cut])
    first, *others = covered_after(progress, None if cut is None else covered, cut)
    assert first.rows == covered
    assert first.outdated == BitMap64([] if cut is None else [cut])
    assert [each.rows for each in others] == [source.live for source in progress.sources[1:]]
    assert not any(each.outdated for each in others)
    for source, each in zip(progress.sources, (first, *others), strict=True):
        assert (each.digest, each.revision) == (source.coverage.digest, source.coverage.revision)
        assert each.watermark == source.snapshot.version
